// Counts of bytes, parameters and FLOP that can't wrap.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace headroom::configs {

/// A count that stays at the largest int64 once it would pass it: a size no machine holds must
/// still compare as too large. Operands are not negative.
class Count {
 public:
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

  constexpr Count(int64_t value = 0) : value_(value) {}  // NOLINT: converting is the point
  constexpr int64_t value() const { return value_; }
  constexpr bool saturated() const { return value_ == kMost; }

  friend constexpr Count operator+(Count a, Count b) {
    int64_t sum = 0;
    return __builtin_add_overflow(a.value_, b.value_, &sum) ? Count(kMost) : Count(sum);
  }
  friend constexpr Count operator*(Count a, Count b) {
    int64_t product = 0;
    return __builtin_mul_overflow(a.value_, b.value_, &product) ? Count(kMost) : Count(product);
  }
  constexpr Count& operator+=(Count other) { return *this = *this + other; }

 private:
  int64_t value_;
};

/// "512 bytes", "12.0 KiB", "1.5 GiB"; a saturated count is "more than 8 EiB".
std::string human_bytes(int64_t bytes);

}  // namespace headroom::configs
