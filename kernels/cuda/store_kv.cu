// Writing keys and values into a cache: rounding, or coding in bytes, a warp to a group of numbers
// that share a scale.
#include "kernels/cuda/cuda_backend.h"

#include <cmath>

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stored_rows.h"

namespace headroom::kernels::cuda {

namespace {

constexpr int kGroup = static_cast<int>(KVCode::kGroup);
static_assert(kGroup == kWarp);  // a lane to a number

/// Rows of `width` numbers go to their slots, rounded to nearest even.
template <class S, class C, class T>
__global__ void round_rows(const S* from, const int32_t* slots, T* to, int64_t count,
                           int64_t width) {
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const int64_t slot = slots[i / width];
    if (slot >= 0) {
      to[slot * width + i % width] = narrow<T>(widen<C>(from[i]));
    }
  }
}

/// The smallest bf16 that is at least x >= 0.
__device__ bf16 rounded_up(float x) {
  bf16 result = narrow<bf16>(x);
  if (widen<float>(result) < x) {
    ++result.bits;
  }
  return result;
}

__device__ inline float nearest(float x) { return rintf(x); }
__device__ inline double nearest(double x) { return rint(x); }

/// Where vectors are coded to: `bytes` bytes and `groups` scales each.
struct Codes {
  int8_t* bytes;
  bf16* scales;
  int64_t bytes_of_vector;
  int groups, bits;
};

template <class S, class C>
__global__ void code_vectors(const S* from, const int32_t* slots, int64_t vectors, int heads,
                             int width, Codes to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = first_item() / kWarp;
  const int64_t vector = warp / to.groups;
  const int64_t slot = vector < vectors ? slots[vector / heads] : -1;
  if (slot < 0) {
    return;  // the whole warp
  }
  const int64_t place = slot * heads + vector % heads;
  const int group = static_cast<int>(warp % to.groups), i = group * kGroup + lane;
  const C x = i < width ? widen<C>(from[vector * width + i]) : C(0);
  C largest = x < 0 ? -x : x;
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const C other = __shfl_xor_sync(kWholeWarp, largest, lanes);
    largest = other > largest ? other : largest;
  }
  const int most = to.bits == 8 ? 127 : 7;
  const float unit = static_cast<float>(largest) / static_cast<float>(most);
  // Every number becomes NaN where one is no finite number: a maximum would lose it.
  const bool finite = x - x == 0 && static_cast<float>(largest) <= 3.402823466e38F;
  const bool all_finite = __all_sync(kWholeWarp, finite) != 0;
  bf16 scale;
  scale.bits = 0x7fc0;
  int q = 0;
  if (all_finite) {
    scale = rounded_up(unit);
    const C divisor = static_cast<C>(widen<float>(scale));
    const C number = divisor > 0 ? nearest(x / divisor) : C(0);
    q = static_cast<int>(number);
    q = q > most ? most : (q < -most ? -most : q);
  }
  const int next = __shfl_down_sync(kWholeWarp, q, 1);
  int8_t* bytes = to.bytes + place * to.bytes_of_vector;
  if (to.bits == 8) {
    if (i < width) {
      bytes[i] = static_cast<int8_t>(q);
    }
  } else if (lane % 2 == 0 && i < width) {
    bytes[i / 2] = static_cast<int8_t>((static_cast<unsigned>(q) & 0xfU) |
                                       (static_cast<unsigned>(next) & 0xfU) << 4U);
  }
  if (lane == 0) {
    to.scales[place * to.groups + group] = scale;
  }
}

/// Calls f.operator()<T>() for the element type of a cache that is not coded.
template <class F>
void for_stored_type(DType type, const F& f) {
  if (type == DType::f16) {
    return f.template operator()<f16>();
  }
  for_type(type, [&]<class T, class>() { f.template operator()<T>(); });
}

}  // namespace

void CudaBackend::store_kv(const Tensor& x, const Tensor& slots, Tensor& to, const KVCode& code) {
  const int64_t heads = x.dim(1), width = x.dim(2), vectors = x.dim(0) * heads;
  const auto* places = slots.data<int32_t>();
  for_type(x.dtype(), [&]<class S, class C>() {
    if (!code.scales.defined()) {
      for_stored_type(to.dtype(), [&]<class T>() {
        launch(round_rows<S, C, T>, blocks_for(x.numel()), dim3(kThreads), 0, x.data<S>(), places,
               to.data<T>(), x.numel(), heads * width);
      });
      return;
    }
    Tensor scales = code.scales;
    const Codes codes{to.data<int8_t>(), scales.data<bf16>(), to.dim(2),
                      static_cast<int>(scales.dim(2)), static_cast<int>(code.bits)};
    const int64_t warps = vectors * codes.groups;
    launch(code_vectors<S, C>, dim3(static_cast<unsigned>((warps * 32 + kThreads - 1) / kThreads)),
           dim3(kThreads), 0, x.data<S>(), places, vectors, static_cast<int>(heads),
           static_cast<int>(width), codes);
  });
}

}  // namespace headroom::kernels::cuda
