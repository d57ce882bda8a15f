// The sizes of a tensor's axes, outermost first.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  // a scalar: rank 0, one element
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  /// Throws on a negative size, on more than kMaxRank axes and when the product passes 2^62.
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  /// Size of axis i; negative i counts from the end, so dim(-1) is the last.
  int64_t dim(int i) const {
    const int axis = i < 0 ? i + rank_ : i;
    if (axis < 0 || axis >= rank_) [[unlikely]] {
      throw_no_axis(i);
    }
    return dims_[static_cast<size_t>(axis)];
  }
  int64_t numel() const { return numel_; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  /// The same axes with the last one replaced.
  Shape with_last(int64_t size) const;
  bool operator==(const Shape& other) const;

 private:
  [[noreturn]] void throw_no_axis(int i) const;

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
  int64_t numel_ = 1;
};

/// "(16, 256, 8)".
std::string to_string(const Shape& shape);

}  // namespace headroom

/// Lets a message take a Shape as it is: only a check that fails spells it out.
template <>
struct fmt::formatter<headroom::Shape> : fmt::formatter<std::string_view> {
  fmt::format_context::iterator format(const headroom::Shape& shape,
                                       fmt::format_context& context) const;
};
