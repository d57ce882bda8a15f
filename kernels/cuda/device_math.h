// What kernels share: element types and the type they are computed in, loads of 16 bytes, and
// reductions whose order depends on nothing but the sizes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/shared.h"
#include "kernels/types.h"
#include "tensor/tensor.h"

namespace headroom::kernels::cuda {

/// A stored number in the compute type, exactly.
template <class C, class S>
__device__ C widen(S x) {
  if constexpr (std::is_same_v<S, bf16>) {
    return static_cast<C>(__uint_as_float(static_cast<uint32_t>(x.bits) << 16U));
  } else if constexpr (std::is_same_v<S, f16>) {
    return static_cast<C>(__half2float(__ushort_as_half(x.bits)));
  } else {
    return static_cast<C>(x);
  }
}

/// A number as it is stored, rounded to nearest even.
template <class S, class C>
__device__ S narrow(C x) {
  if constexpr (std::is_same_v<S, bf16>) {
    bf16 y;
    y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(x)));
    return y;
  } else if constexpr (std::is_same_v<S, f16>) {
    f16 y;
    y.bits = __half_as_ushort(__float2half_rn(static_cast<float>(x)));
    return y;
  } else {
    return static_cast<S>(x);
  }
}

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }
__device__ inline float square_root(float x) { return sqrtf(x); }
__device__ inline double square_root(double x) { return sqrt(x); }
__device__ inline float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ inline double hyperbolic_tangent(double x) { return tanh(x); }
__device__ inline float error_function(float x) { return erff(x); }
__device__ inline double error_function(double x) { return erf(x); }

/// y (+)= x.
template <class S, class C>
__device__ void put(C x, S* y, bool add) {
  *y = narrow<S>(add ? widen<C>(*y) + x : x);
}

/// Threads of a block where nothing asks for another number.
inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffU;

/// Blocks for a loop over `items` in which each thread takes every (all threads)-th: no more than
/// keep any GPU busy several times over.
inline dim3 blocks_for(int64_t items) {
  constexpr int64_t kMostBlocks = 4096;
  return dim3(static_cast<unsigned>(std::min(kMostBlocks, (items + kThreads - 1) / kThreads)));
}

/// The first item of a thread in such a loop, and the step to its next.
__device__ inline int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t item_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// Blocks for rows, one each. A grid is at most 2^31 - 1 wide; kernels go on by gridDim.x.
inline dim3 block_per_row(int64_t rows) {
  return dim3(static_cast<unsigned>(std::min<int64_t>(rows, 1 << 30)));
}

/// Neighbours that one load of 16 bytes fetches.
template <class S>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(S));
template <class S>
struct alignas(16) Pack {
  S x[kPack<S>];
};

inline bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

struct Sum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Maximum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a < b ? b : a;
  }
};

/// The lanes' values joined, in every lane.
template <class C, class Join>
__device__ C join_warp(C x, const Join& join) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    x = join(x, __shfl_xor_sync(kWholeWarp, x, lanes));
  }
  return x;
}

/// The threads' values joined, in every thread; `scratch` holds an element per warp. Whole warps.
template <class C, class Join>
__device__ C join_block(C x, Shared<C> scratch, const Join& join) {
  const int thread = static_cast<int>(threadIdx.x), warps = static_cast<int>(blockDim.x) / kWarp;
  x = join_warp(x, join);
  if (thread % kWarp == 0) {
    scratch[thread / kWarp] = x;
  }
  __syncthreads();
  C joined = scratch[0];
  for (int warp = 1; warp < warps; ++warp) {
    joined = join(joined, static_cast<C>(scratch[warp]));
  }
  __syncthreads();  // the scratch may be used again
  return joined;
}

}  // namespace headroom::kernels::cuda
