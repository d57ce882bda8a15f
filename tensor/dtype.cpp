// Half precision in integer arithmetic.
#include "tensor/dtype.h"

#include <cmath>

namespace headroom {

// Rounds to nearest even by letting the float32 adder do it: adding and removing a number whose
// last mantissa bit is the one to keep. Subnormal halves need a fixed such number, normal ones a
// multiple of x's own exponent.
f16::f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    bits = sign | 0x7e00U;  // NaN
  } else if (magnitude >= 0x477ff000U) {
    bits = sign | 0x7c00U;               // 65520 and above round to infinity
  } else if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24
    bits = sign | static_cast<uint16_t>(std::nearbyint(std::fabs(x) * 16777216.0F));
  } else {
    const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    bits = sign | static_cast<uint16_t>((rounded - 0x38000000U) >> 13);
  }
}

f16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  }
  if (magnitude < 0x400U) {
    const float value = static_cast<float>(magnitude) / 16777216.0F;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
}

}  // namespace headroom
