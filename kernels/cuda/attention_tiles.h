// What the kernels of attention share: the sizes of a call, which keys a tile of queries sees,
// tiles in shared memory, and their products, by tensor cores or by plain multiply-adds.
//
// A block of 128 threads works on a tile of 64 rows and one of 64 keys; each of its four warps owns
// 16 rows of the one that its results belong to. A "row" is one query of one head: those of a
// sequence and KV head are numbered position by position, the heads of the group side by side, so
// that a tile of rows shares every key it loads, and no key is repeated in memory.
#pragma once

#include <type_traits>

#include "kernels/backend.h"
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/stored_rows.h"
#include "kernels/cuda/tensor_core.h"

namespace headroom::kernels::cuda {

/// Rows of a tile, and the threads that work on it.
inline constexpr int kTile = 64, kTileThreads = 128, kWarpRows = 16;
static_assert(kTile == KVView::kBlock);

/// A score that no real one comes near. A power of 2, so that its products are exact; finite, so
/// that differences of two are no NaN.
inline constexpr float kHidden = -0x1p100F;
/// Powers of 2 are cheaper than those of e: scores are multiplied by log2 e.
inline constexpr double kLog2E = 1.4426950408889634074, kLn2 = 0.69314718055994530942;

/// The sizes and tables of a call.
struct AttentionSizes {
  explicit AttentionSizes(const AttentionInputs& in)
      : batch(static_cast<int>(in.q.dim(0))),
        queries(static_cast<int>(in.q.dim(1))),
        heads(static_cast<int>(in.q.dim(2))),
        kv_heads(static_cast<int>(in.kv.k.dim(1))),
        group(heads / kv_heads),
        key_size(static_cast<int>(in.q.dim(3))),
        value_size(static_cast<int>(in.kv.width_of_values())),
        blocks(static_cast<int>(in.kv.slots.dim(1))),
        window(static_cast<int>(in.mask.window)),
        sinks(static_cast<int>(in.mask.sinks)),
        slots(in.kv.slots.data<int32_t>()),
        starts(in.kv.starts.data<int32_t>()),
        lengths(in.kv.lengths.data<int32_t>()),
        counts(in.kv.counts.data<int32_t>()) {}

  /// All rows of a sequence and KV head, and those that are real.
  __host__ __device__ int all_rows() const { return queries * group; }
  __device__ int rows(int b) const { return counts[b] * group; }
  __device__ int position(int b, int row) const { return lengths[b] - counts[b] + row / group; }
  /// Where the row is in a (B, T, H) tensor.
  __device__ int64_t index(int b, int kv_head, int row) const {
    return (static_cast<int64_t>(b) * queries + row / group) * heads + kv_head * group +
           row % group;
  }
  /// Where the key of a slot is among the (slots, K) vectors.
  __device__ int64_t vector(int64_t slot, int kv_head) const { return slot * kv_heads + kv_head; }
  /// The first position of block n, or -1 where the table has no more keys.
  __device__ int start(int b, int n) const {
    const int start = n < blocks ? starts[static_cast<int64_t>(b) * blocks + n] : -1;
    return start < lengths[b] ? start : -1;
  }
  __device__ int slot(int b, int n) const { return slots[static_cast<int64_t>(b) * blocks + n]; }
  __device__ bool sees(int position, int key) const {
    return key <= position && (window == 0 || key > position - window || key < sinks);
  }
  /// Whether some query at positions first .. last sees some key at positions begin .. end - 1.
  __device__ bool some_see(int first, int last, int begin, int end) const {
    return begin <= last && (window == 0 || end - 1 > first - window || begin < sinks);
  }
  /// Whether all of them see all.
  __device__ bool all_see(int first, int last, int begin, int end) const {
    return end - 1 <= first && (window == 0 || begin > last - window || end <= sinks);
  }

  int batch, queries, heads, kv_heads, group, key_size, value_size, blocks;
  int window, sinks;
  const int32_t *slots, *starts, *lengths, *counts;
};

/// The number of pieces of `piece` that n is cut into.
__host__ __device__ constexpr int pieces_of(int n, int piece) { return (n + piece - 1) / piece; }

__device__ inline float power_of_2(float x) { return exp2f(x); }
__device__ inline double power_of_2(double x) { return exp2(x); }

/// The rows of a product's results that a thread owns: values[i][j] is of row row(i) of the tile
/// and column column(j).
template <class Tile, int kColumns>
struct Accumulator {
  static constexpr int kEach = kColumns * kWarpRows / 32 / Tile::kThreadRows;
  typename Tile::C values[Tile::kThreadRows][kEach] = {};
};

/// Tiles whose products tensor cores compute: 16 rows of a warp lie in its lanes as fragments.
template <int kDepth_>
struct TensorTile {
  using C = float;
  using Operand = bf16;
  static constexpr int kDepth = kDepth_;      // columns of a tile in shared memory
  static constexpr int kStride = kDepth + 8;  // rows begin in different banks
  static constexpr int kThreadRows = 2, kLanesOfRow = 4;
  static constexpr int kExchange = 0;

  static __device__ int row(int i) {
    return static_cast<int>(threadIdx.x) / 32 * kWarpRows + static_cast<int>(threadIdx.x) % 32 / 4 +
           8 * i;
  }
  static __device__ int column(int j) {
    return j / 2 * 8 + 2 * (static_cast<int>(threadIdx.x) % 4) + j % 2;
  }

  /// Begins to load columns [column, column + kDepth) of 64 vectors, zeros where there are none:
  /// vector_of(r) is the place of the r-th, or -1.
  template <class F>
  static __device__ void load(Shared<bf16> tile, const StoredRows& from, int column,
                              const F& vector_of) {
    constexpr int kSlices = kDepth / kSlice;
    const auto* values = static_cast<const bf16*>(from.values);
    for (int s = static_cast<int>(threadIdx.x); s < kTile * kSlices; s += kTileThreads) {
      const int r = s / kSlices, c = s % kSlices * kSlice;
      const int64_t vector = vector_of(r);
      const bf16* numbers = values + vector * from.stride + column + c;
      if (from.slices_are_aligned) {
        const bool some = vector >= 0 && column + c < from.width;
        copy_async(tile, r * kStride + c, some ? numbers : nullptr);
        continue;
      }
      for (int j = 0; j < kSlice; ++j) {
        const bool some = vector >= 0 && column + c + j < from.width;
        tile[r * kStride + c + j] = some ? numbers[j] : bf16();
      }
    }
  }

  /// sums (64, 64) += a (64, depth) times the transpose of b (64, depth).
  static __device__ void multiply(Shared<bf16> a, Shared<bf16> b, int depth,
                                  Accumulator<TensorTile, kTile>& sums) {
    const int first = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
    for (int k = 0; k < depth; k += 16) {
      const FragmentA rows = load_a(a, kStride, first, k);
      HEADROOM_UNROLL
      for (int n = 0; n < kTile; n += 16) {
        FragmentB columns[2];
        load_b_of_rows(b, kStride, n, k, columns);
        add(rows, columns, n, sums);
      }
    }
  }

  /// sums (64, kColumns) += a (64, 64) b (64, kColumns), of whose rows `depth` are in use and of
  /// whose columns `width`.
  template <int kColumns>
  static __device__ void multiply_add_to(const Accumulator<TensorTile, kTile>& a,
                                         Shared<typename TensorTile::C> /*exchange*/,
                                         Shared<bf16> b, int depth, int width,
                                         Accumulator<TensorTile, kColumns>& sums) {
    HEADROOM_UNROLL
    for (int k = 0; k < kTile; k += 16) {
      FragmentA rows;  // what C holds of a product is what A holds of the next
      HEADROOM_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int at = k / 4;
        rows.x[i] = pack_bf16(a.values[i][at], a.values[i][at + 1]);
        rows.x[i + 2] = pack_bf16(a.values[i][at + 2], a.values[i][at + 3]);
      }
      HEADROOM_UNROLL
      for (int n = 0; n < kColumns; n += 16) {
        if (k < depth && n < width) {
          FragmentB columns[2];
          load_b_of_columns(b, kStride, n, k, columns);
          add(rows, columns, n, sums);
        }
      }
    }
  }

 private:
  template <int kColumns>
  static __device__ void add(const FragmentA& rows, const FragmentB (&columns)[2], int n,
                             Accumulator<TensorTile, kColumns>& sums) {
    HEADROOM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = n / 4 + 2 * half;
      FragmentC c = {
          {sums.values[0][at], sums.values[0][at + 1], sums.values[1][at], sums.values[1][at + 1]}};
      multiply_add(rows, columns[half], c);
      sums.values[0][at] = c.x[0];
      sums.values[0][at + 1] = c.x[1];
      sums.values[1][at] = c.x[2];
      sums.values[1][at + 1] = c.x[3];
    }
  }
};

/// Tiles in the compute type, for f32, f64, and keys and values of types that bf16 would round.
template <class C_>
struct PlainTile {
  using C = C_;
  using Operand = C;
  static constexpr int kDepth = sizeof(C) == sizeof(double) ? 32 : 64;
  static constexpr int kStride = kDepth + 1;  // rows begin in different banks
  static constexpr int kThreadRows = 8, kLanesOfRow = 16;
  // In f64 tiles just fit the 99 KiB of compute capabilities 8.6 and 8.9: no padding.
  static constexpr int kExchangeStride = sizeof(C) == sizeof(double) ? kTile : kTile + 1;
  static constexpr int kExchange = kTile * kExchangeStride;

  static __device__ int row(int i) {
    return static_cast<int>(threadIdx.x) / 32 * kWarpRows +
           static_cast<int>(threadIdx.x) % 32 / 16 + 2 * i;
  }
  static __device__ int column(int j) { return static_cast<int>(threadIdx.x) % 16 + 16 * j; }

  template <class F>
  static __device__ void load(Shared<C> tile, const StoredRows& from, int column,
                              const F& vector_of) {
    with_reader<C>(from, [&](const auto& reader) {
      for (int s = static_cast<int>(threadIdx.x); s < kTile * kDepth; s += kTileThreads) {
        const int r = s / kDepth, c = s % kDepth;
        const int64_t vector = vector_of(r);
        const bool some = vector >= 0 && column + c < from.width;
        tile[r * kStride + c] = some ? reader.template number<C>(vector, column + c) : C(0);
      }
    });
  }

  static __device__ void multiply(Shared<C> a, Shared<C> b, int depth,
                                  Accumulator<PlainTile, kTile>& sums) {
    for (int k = 0; k < depth; ++k) {
      C columns[4];
      HEADROOM_UNROLL
      for (int j = 0; j < 4; ++j) {
        columns[j] = b[column(j) * kStride + k];
      }
      HEADROOM_UNROLL
      for (int i = 0; i < kThreadRows; ++i) {
        const C x = a[row(i) * kStride + k];
        HEADROOM_UNROLL
        for (int j = 0; j < 4; ++j) {
          sums.values[i][j] += x * columns[j];
        }
      }
    }
  }

  template <int kColumns>
  static __device__ void multiply_add_to(const Accumulator<PlainTile, kTile>& a, Shared<C> exchange,
                                         Shared<C> b, int depth, int /*width*/,
                                         Accumulator<PlainTile, kColumns>& sums) {
    constexpr int kEach = Accumulator<PlainTile, kColumns>::kEach;
    __syncwarp();  // whoever read the last ones has them
    HEADROOM_UNROLL
    for (int i = 0; i < kThreadRows; ++i) {
      HEADROOM_UNROLL
      for (int j = 0; j < 4; ++j) {
        exchange[row(i) * kExchangeStride + column(j)] = a.values[i][j];
      }
    }
    __syncwarp();  // a warp's rows are its own
    for (int k = 0; k < depth; ++k) {
      C columns[kEach];
      HEADROOM_UNROLL
      for (int j = 0; j < kEach; ++j) {
        columns[j] = b[k * kStride + column(j)];
      }
      HEADROOM_UNROLL
      for (int i = 0; i < kThreadRows; ++i) {
        const C x = exchange[row(i) * kExchangeStride + k];
        HEADROOM_UNROLL
        for (int j = 0; j < kEach; ++j) {
          sums.values[i][j] += x * columns[j];
        }
      }
    }
  }
};

/// The largest of, and the sum over, what the lanes of a row hold; each of them gets it.
template <class Tile>
__device__ typename Tile::C largest_of_row(typename Tile::C x) {
  for (int lanes = Tile::kLanesOfRow / 2; lanes > 0; lanes /= 2) {
    const typename Tile::C other = __shfl_xor_sync(kWholeWarp, x, lanes);
    x = x > other ? x : other;
  }
  return x;
}
template <class Tile>
__device__ typename Tile::C sum_of_row(typename Tile::C x) {
  for (int lanes = Tile::kLanesOfRow / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(kWholeWarp, x, lanes);
  }
  return x;
}

/// Vectors that a tile is loaded from: vector_of(r) is the place of the r-th, or -1 for zeros; the
/// name tells a tile's from the next one's.
template <class F>
struct Source {
  const StoredRows& rows;
  int name;
  F vector_of;
};
template <class F>
Source(const StoredRows&, int, F) -> Source<F>;

/// A tile in shared memory and what it holds: a stretch of columns of 64 vectors.
template <class Tile>
class Staged {
 public:
  static constexpr int kElements = kTile * Tile::kStride;

  __device__ explicit Staged(Shared<typename Tile::Operand> memory) : memory_(memory) {}

  /// Begins to load columns [column, column + kDepth), unless they are there. All threads of the
  /// block call it, past a barrier behind the last use.
  template <class From>
  __device__ void load(const From& from, int column) {
    if (column == column_ && from.name == name_) {
      return;
    }
    column_ = column;
    name_ = from.name;
    Tile::load(memory_, from.rows, column, from.vector_of);
  }
  __device__ Shared<typename Tile::Operand> memory() const { return memory_; }

 private:
  Shared<typename Tile::Operand> memory_;
  int column_ = -1, name_ = -1;
};

/// sums (64, 64) = the vectors of a times those of b, as deep as they are wide. Their first
/// stretches have been loaded by this thread, perhaps not yet by others.
template <class Tile, class A, class B>
__device__ void multiply_vectors(Staged<Tile>& a, const A& from_a, Staged<Tile>& b, const B& from_b,
                                 Accumulator<Tile, kTile>& sums) {
  sums = {};
  const int width = from_a.rows.width;
  for (int column = 0; column < width; column += Tile::kDepth) {
    if (column > 0) {
      __syncthreads();
      a.load(from_a, column);
      b.load(from_b, column);
      commit_copies();
      wait_for_copies<0>();
    }
    __syncthreads();
    const int left = width - column;
    Tile::multiply(a.memory(), b.memory(), left < Tile::kDepth ? left : Tile::kDepth, sums);
  }
}

/// Hands out shared memory, one array after another.
class SharedPieces {
 public:
  template <class T>
  __device__ Shared<T> take(int count) {
    const Shared<T> piece = shared_memory<T>(bytes_, count);
    bytes_ += (count * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
    return piece;
  }

 private:
  int bytes_ = 0;
};
/// The bytes that so many tiles, and what the threads of a row exchange, take.
template <class Tile>
constexpr size_t bytes_of_tiles(int tiles) {
  return static_cast<size_t>(tiles * Staged<Tile>::kElements) * sizeof(typename Tile::Operand) +
         static_cast<size_t>(Tile::kExchange) * sizeof(typename Tile::C);
}

}  // namespace headroom::kernels::cuda
