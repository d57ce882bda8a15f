// Half precision of the CUDA math API, as far as it is used.
#pragma once

#include "simt_device.h"
#include "tensor/dtype.h"

struct __half {
  unsigned short bits;
};

inline __half __float2half_rn(float x) { return {headroom::f16(x).bits}; }
inline float __half2float(__half x) {
  headroom::f16 stored;
  stored.bits = x.bits;
  return static_cast<float>(stored);
}
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
