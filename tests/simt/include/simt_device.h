// CUDA C++ for a host compiler: what device code names, for kernels that run on fibers, one for
// each thread. Only what this project uses, with the names and meanings of the CUDA C++ Programming
// Guide.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

using std::isfinite;
using std::isnan;

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

/// Of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace simt {

using Place = std::source_location;

enum class WarpCall : uint8_t { sync, shuffle, ballot };

/// Waits for the lanes of `mask`. Returns what lane `source` brought (shuffle), or the lanes that
/// brought a 1 (ballot).
uint64_t call_warp(WarpCall call, unsigned mask, uint64_t brought, int source, const Place& place);
void sync_block(const Place& place);
int lane();
/// The number of the block that runs, counted over all launches: no two have the same.
int64_t block_number();

void read_shared(int offset, size_t bytes, void* to);
void write_shared(int offset, size_t bytes, const void* from);
/// An asynchronous copy, of which the calling thread has begun, and of which it waited for the end.
void begin_shared_copy(int offset, size_t bytes);
void end_shared_copy(int offset, size_t bytes, const void* from);
[[noreturn]] void report_index(int index, int count);

template <class T>
T shuffle(unsigned mask, T value, int source, const Place& place) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t brought = 0;
  std::memcpy(&brought, &value, sizeof(T));
  const uint64_t got = call_warp(WarpCall::shuffle, mask, brought, source, place);
  std::memcpy(&value, &got, sizeof(T));
  return value;
}

}  // namespace simt

inline void __syncthreads(const simt::Place& place = simt::Place::current()) {
  simt::sync_block(place);
}
inline void __syncwarp(unsigned mask = 0xffffffffU,
                       const simt::Place& place = simt::Place::current()) {
  simt::call_warp(simt::WarpCall::sync, mask, 0, 0, place);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source,
              const simt::Place& place = simt::Place::current()) {
  return simt::shuffle(mask, value, source % 32, place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes,
                  const simt::Place& place = simt::Place::current()) {
  return simt::shuffle(mask, value, simt::lane() ^ lanes, place);
}
/// Lanes whose source would lie outside the warp keep their own value.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta,
                   const simt::Place& place = simt::Place::current()) {
  const int source = simt::lane() + static_cast<int>(delta);
  return simt::shuffle(mask, value, source < 32 ? source : simt::lane(), place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const simt::Place& place = simt::Place::current()) {
  return static_cast<unsigned>(
      simt::call_warp(simt::WarpCall::ballot, mask, predicate != 0 ? 1 : 0, 0, place));
}
inline int __any_sync(unsigned mask, int predicate,
                      const simt::Place& place = simt::Place::current()) {
  return __ballot_sync(mask, predicate, place) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const simt::Place& place = simt::Place::current()) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0, place) == 0 ? 1 : 0;
}

inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32U);
}
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

/// Fibers switch nowhere but in barriers and warp calls: a plain addition is atomic.
template <class T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = static_cast<T>(before + value);
  return before;
}
