// bfloat16 of the CUDA math API, as far as it is used.
#pragma once

#include "simt_device.h"

struct __nv_bfloat16 {
  unsigned short bits;
};

/// Rounds to nearest even; NaN becomes 0x7fff.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
  const uint32_t rounded = (u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U;
  return {static_cast<unsigned short>(nan ? 0x7fffU : rounded)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
