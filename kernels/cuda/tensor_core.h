// Tensor cores and asynchronous copies: the only instructions that CUDA C++ has no names for. On
// the device each helper is one instruction of PTX; on the host, for the harness of tests/simt, it
// does what the PTX manual says the instruction does, number by number.
//
// Fragments of m16n8k16 with bf16 operands (PTX ISA 8.7, section 9.7.14.5.8). With g = lane / 4 and
// t = lane % 4, a lane holds, two numbers to a register, the lower first:
//   A (16 x 16)  a0 a1: row g,     columns 2t, 2t + 1     a4 a5: row g,     columns 2t + 8, + 9
//                a2 a3: row g + 8, columns 2t, 2t + 1     a6 a7: row g + 8, columns 2t + 8, + 9
//   B (16 x 8)   b0 b1: rows 2t, 2t + 1 of column g       b2 b3: rows 2t + 8, 2t + 9 of column g
//   C (16 x 8)   c0 c1: row g, columns 2t, 2t + 1         c2 c3: row g + 8, columns 2t, 2t + 1
// ldmatrix (section 9.7.14.5.15): lane 8 m + r says where row r of matrix m begins; of each 8 x 8
// matrix a lane receives row g, columns 2t and 2t + 1, or, transposed, rows 2t and 2t + 1 of column
// g. Rows begin at multiples of 16 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/shared.h"
#include "tensor/dtype.h"

#ifndef __CUDACC__
#include <vector>

#include "tensor/check.h"
#endif

namespace headroom::kernels::cuda {

struct FragmentA {
  uint32_t x[4];
};
struct FragmentB {
  uint32_t x[2];
};
/// Two neighbours along the columns of C, which lie so in A and B.
struct FragmentC {
  float x[4];
};

/// Bytes that one asynchronous copy moves; both ends are multiples of it.
inline constexpr int kCopyBytes = 16;

/// Two numbers of bf16 in a register, rounded to nearest even.
__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat16 a = __float2bfloat16_rn(low), b = __float2bfloat16_rn(high);
  return static_cast<uint32_t>(__bfloat16_as_ushort(a)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(b)) << 16U;
}

#ifdef __CUDACC__

/// Before a loop over an array that is to stay in registers: all of its rounds, one after another.
#define HEADROOM_UNROLL _Pragma("unroll")

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// c += a b, for a warp.
__device__ inline void multiply_add(const FragmentA& a, const FragmentB& b, FragmentC& c) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}

/// The four 8 x 8 matrices whose rows begin at elements `row` of the lanes.
__device__ inline void load_matrices(Shared<bf16> tile, int row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(&tile[row]))
               : "memory");
}
/// The same, transposed.
__device__ inline void load_matrices_transposed(Shared<bf16> tile, int row, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(&tile[row]))
               : "memory");
}

/// Begins to copy kCopyBytes from global memory to tile[at ...], or zeros where `from` is null.
__device__ inline void copy_async(Shared<bf16> tile, int at, const bf16* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(&tile[at])),
               "l"(from), "r"(from == nullptr ? 0 : kCopyBytes)
               : "memory");
}
/// What this thread has begun since the last commit is one group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits until at most kPending of this thread's latest groups are still under way.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

#else  // the harness

#define HEADROOM_UNROLL

namespace host {

inline constexpr int kLanes = 32, kMostThreads = 1024;

inline int thread() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
inline int lane() { return thread() % kLanes; }

/// What the lanes of a warp show each other. Blocks run one after another, and the warps of a block
/// each have their own.
struct Exchange {
  FragmentA a[kLanes];
  FragmentB b[kLanes];
  int row[kLanes];
};
inline Exchange& exchange() {
  static Exchange all[kMostThreads / kLanes];
  return all[thread() / kLanes];
}

inline float half_of(uint32_t pair, int upper) {
  bf16 x;
  x.bits = static_cast<uint16_t>(pair >> (upper != 0 ? 16U : 0U));
  return static_cast<float>(x);
}

/// A[row][k] and B[k][column], found with the lanes that hold them.
inline float number_of_a(const Exchange& all, int row, int k) {
  const FragmentA& held = all.a[row % 8 * 4 + k % 8 / 2];
  return half_of(held.x[row / 8 + k / 8 * 2], k % 2);
}
inline float number_of_b(const Exchange& all, int k, int column) {
  const FragmentB& held = all.b[column * 4 + k % 8 / 2];
  return half_of(held.x[k / 8], k % 2);
}

/// A copy that has begun: seen when the thread has waited for it, not before.
struct Copy {
  int offset;
  const bf16* from;
};
struct Copies {
  int64_t block = 0;                      // whose they are
  std::vector<std::vector<Copy>> groups;  // committed, the oldest first
  std::vector<Copy> open;
};
inline Copies& copies() {
  static std::vector<Copies> all(kMostThreads);
  Copies& mine = all[static_cast<size_t>(thread())];
  if (mine.block != ::simt::block_number()) {
    mine = {::simt::block_number(), {}, {}};
  }
  return mine;
}
inline void carry_out(const Copy& copy) {
  static constexpr bf16 kZeros[kCopyBytes / 2] = {};
  ::simt::end_shared_copy(copy.offset, kCopyBytes, copy.from == nullptr ? kZeros : copy.from);
}

/// Waits until all lanes are here, as mma and ldmatrix do (.sync), which order no memory: a vote,
/// and no barrier.
inline void gather_lanes() { __ballot_sync(0xffffffffU, 1); }

inline void load(Shared<bf16> tile, int row, bool transposed, uint32_t (&to)[4]) {
  const int offset = tile.offset_of(row, kCopyBytes / 2);
  check(offset % kCopyBytes == 0,
        "[simt] ldmatrix: rows begin at multiples of 16 bytes, got offset {}", offset);
  Exchange& all = exchange();
  all.row[lane()] = row;
  gather_lanes();
  for (int m = 0; m < 4; ++m) {
    const int g = lane() / 4, t = 2 * (lane() % 4);
    bf16 low, high;
    if (transposed) {
      low = tile[all.row[8 * m + t] + g];
      high = tile[all.row[8 * m + t + 1] + g];
    } else {
      low = tile[all.row[8 * m + g] + t];
      high = tile[all.row[8 * m + g] + t + 1];
    }
    to[m] = static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16U;
  }
  gather_lanes();
}

}  // namespace host

inline void multiply_add(const FragmentA& a, const FragmentB& b, FragmentC& c) {
  host::Exchange& all = host::exchange();
  const int lane = host::lane();
  all.a[lane] = a;
  all.b[lane] = b;
  host::gather_lanes();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < 16; ++k) {
      c.x[i] += host::number_of_a(all, row, k) * host::number_of_b(all, k, column);
    }
  }
  host::gather_lanes();
}

inline void load_matrices(Shared<bf16> tile, int row, uint32_t (&to)[4]) {
  host::load(tile, row, false, to);
}
inline void load_matrices_transposed(Shared<bf16> tile, int row, uint32_t (&to)[4]) {
  host::load(tile, row, true, to);
}

/// PTX ISA 8.7, section 9.7.9.25.3.1: both addresses are aligned to the size of the copy.
inline void copy_async(Shared<bf16> tile, int at, const bf16* from) {
  const int offset = tile.offset_of(at, kCopyBytes / 2);
  check(offset % kCopyBytes == 0 && reinterpret_cast<uintptr_t>(from) % kCopyBytes == 0,
        "[simt] cp.async: both ends are multiples of 16 bytes, got offset {} and address {}",
        offset, static_cast<const void*>(from));
  ::simt::begin_shared_copy(offset, kCopyBytes);
  host::copies().open.push_back({offset, from});
}
inline void commit_copies() {
  host::Copies& all = host::copies();
  all.groups.push_back(std::move(all.open));
  all.open.clear();
}
template <int kPending>
void wait_for_copies() {
  host::Copies& all = host::copies();
  while (all.groups.size() > kPending) {
    for (const host::Copy& copy : all.groups.front()) {
      host::carry_out(copy);
    }
    all.groups.erase(all.groups.begin());
  }
}

#endif

/// The 16 x 16 fragment of a row-major tile, `stride` elements to a row, that begins at (row, k).
__device__ inline FragmentA load_a(Shared<bf16> tile, int stride, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  FragmentA a;
  load_matrices(tile, (row + lane % 16) * stride + k + lane / 16 * 8, a.x);
  return a;
}

/// Two neighbouring 16 x 8 fragments of B, of columns `column` and `column` + 8. The tile holds B's
/// transpose, row-major: B(k, column) is tile[column * stride + k].
__device__ inline void load_b_of_rows(Shared<bf16> tile, int stride, int column, int k,
                                      FragmentB (&b)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t x[4];
  load_matrices(tile, (column + lane / 16 * 8 + lane % 8) * stride + k + lane / 8 % 2 * 8, x);
  b[0] = {{x[0], x[1]}};
  b[1] = {{x[2], x[3]}};
}

/// The same where the tile holds B itself: B(k, column) is tile[k * stride + column].
__device__ inline void load_b_of_columns(Shared<bf16> tile, int stride, int column, int k,
                                         FragmentB (&b)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t x[4];
  load_matrices_transposed(tile, (k + lane % 16) * stride + column + lane / 16 * 8, x);
  b[0] = {{x[0], x[1]}};
  b[1] = {{x[2], x[3]}};
}

}  // namespace headroom::kernels::cuda
