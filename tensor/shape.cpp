// Shapes are checked where they are made, so that no size can overflow later.
#include "tensor/shape.h"

#include <algorithm>

#include "tensor/check.h"

namespace headroom {

Shape::Shape(std::span<const int64_t> dims) {
  check(dims.size() <= kMaxRank, "[shape] at most {} axes: got {}", kMaxRank, dims.size());
  rank_ = static_cast<int>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    check(dims[i] >= 0, "[shape] axis {} must not be negative: got {}", i, dims[i]);
    dims_[i] = dims[i];
    const bool wraps = __builtin_mul_overflow(numel_, dims[i], &numel_);
    check(!wraps && numel_ <= (int64_t{1} << 62),
          "[shape] the number of elements passes 2^62 at axis {} of size {}", i, dims[i]);
  }
}

void Shape::throw_no_axis(int i) const {
  throw Error(fmt::format("[shape] axis {} of shape {}", i, *this));
}

Shape Shape::with_last(int64_t size) const {
  check(rank_ > 0, "[shape] a scalar has no last axis");
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[static_cast<size_t>(rank_ - 1)] = size;
  return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank_)));
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

std::string to_string(const Shape& shape) {
  return fmt::format("({})", fmt::join(shape.dims(), ", "));
}

}  // namespace headroom

fmt::format_context::iterator fmt::formatter<headroom::Shape>::format(
    const headroom::Shape& shape, fmt::format_context& context) const {
  return fmt::formatter<std::string_view>::format(to_string(shape), context);
}
