// The vector side of attention, forward and backward: products of small tiles, transposition, loads
// of tiles, the mask. Included once per SIMD target, as simd-inl.h.
//
// The lanes of a vector are rows (queries), so that maximum, exponential and sum of the softmax are
// plain vector arithmetic and keys and values are read as they lie in memory, one number broadcast
// at a time. Only queries and outputs are transposed, once per tile.

#if defined(HEADROOM_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_ATTENTION_INL_H_
#undef HEADROOM_ATTENTION_INL_H_
#else
#define HEADROOM_ATTENTION_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/attention_pairs-inl.h"
#include "kernels/cpu/attention_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// Sizes that a product rounds its rows up to; the multiple of its accumulators' number.
inline constexpr int64_t kStep = 8;
/// Keys of a tile's scratch: a block, and the rows that rounding up may touch.
inline constexpr int64_t kTileKeys = KVView::kBlock + kStep;

/// A tile of rows: kVectors vectors of the tag D. Operands of its products are numbers of the
/// compute type, or pairs of bf16 along the axis that a product sums over.
template <class D_, int kVectors_, class Operand_ = hn::TFromD<D_>>
struct RowTile {
  using D = D_;
  using C = hn::TFromD<D>;
  using Operand = Operand_;
  static constexpr int64_t kPack = std::is_same_v<Operand, Pair> ? 2 : 1;  // numbers in an operand
  static constexpr int kVectors = kVectors_;
  static constexpr int64_t kLanes = hn::MaxLanes(D());
  static constexpr int64_t kRows = kVectors * kLanes;
  static constexpr int64_t kRowOperands = kRows / kPack;
};

/// Columns of a scratch matrix whose rows are vectors of `width` numbers.
template <class C>
constexpr int64_t padded(int64_t width) {
  return round_up(width, std::max<int64_t>(kStep, hn::MaxLanes(hn::ScalableTag<C>())));
}

/// Operands that hold n numbers of the axis a product sums over, and columns of a scratch matrix
/// with rows of so many.
template <class Tile>
constexpr int64_t packs(int64_t n) {
  return (n + Tile::kPack - 1) / Tile::kPack;
}
template <class Tile>
constexpr int64_t packed_columns(int64_t width) {
  return padded<typename Tile::C>(packs<Tile>(width));
}

/// c[i][:] (+)= sum over k of a(i, k) * b[k][:] for i < m, m rounded up to kStep; a(i, k) is
/// a[i * lda + k], or a[k * lda + i] with kColumns. Rows of b and c are kVectors vectors wide.
template <bool kColumns, bool kAdd, int kVectors, class D, class C>
HWY_INLINE void product(D d, int64_t m, int64_t depth, const C* HWY_RESTRICT a, int64_t lda,
                        const C* HWY_RESTRICT b, int64_t ldb, C* HWY_RESTRICT c, int64_t ldc) {
  // Accumulators, a row of b and a broadcast must fit the 32 registers of AVX-512, 16 elsewhere.
  constexpr int kHeight = HWY_TARGET == HWY_AVX3 || kVectors == 1 ? 8 : 4;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  for (int64_t i = 0; i < m; i += kHeight) {
    const C* ai = a + (kColumns ? i : i * lda);
    C* ci = c + i * ldc;
    hn::Vec<D> sum[kHeight][kVectors];
    for (int u = 0; u < kHeight; ++u) {
      for (int v = 0; v < kVectors; ++v) {
        sum[u][v] = kAdd ? hn::Load(d, ci + u * ldc + v * kLanes) : hn::Zero(d);
      }
    }
    for (int64_t k = 0; k < depth; ++k) {
      hn::Vec<D> bk[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        bk[v] = hn::Load(d, b + k * ldb + v * kLanes);
      }
      for (int u = 0; u < kHeight; ++u) {
        const auto factor = hn::Set(d, kColumns ? ai[k * lda + u] : ai[u * lda + k]);
        for (int v = 0; v < kVectors; ++v) {
          sum[u][v] = hn::MulAdd(factor, bk[v], sum[u][v]);
        }
      }
    }
    for (int u = 0; u < kHeight; ++u) {
      for (int v = 0; v < kVectors; ++v) {
        hn::Store(sum[u][v], d, ci + u * ldc + v * kLanes);
      }
    }
  }
}

/// to[0 .. side)[0 .. side) = the transpose of from[0 .. side)[0 .. side), side being kSide<C>.
#if HWY_TARGET == HWY_SCALAR
template <class C>
inline constexpr int64_t kSide = 1;
template <class C>
HWY_INLINE void transpose_square(const C* from, int64_t, C* to, int64_t) {
  *to = *from;
}
#else
template <class C>
inline constexpr int64_t kSide = 16 / sizeof(C);
HWY_INLINE void transpose_square(const float* from, int64_t ldf, float* to, int64_t ldt) {
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::Load(d, from), r1 = hn::Load(d, from + ldf);
  const auto r2 = hn::Load(d, from + 2 * ldf), r3 = hn::Load(d, from + 3 * ldf);
  const auto even_low = hn::InterleaveLower(d, r0, r2), even_high = hn::InterleaveUpper(d, r0, r2);
  const auto odd_low = hn::InterleaveLower(d, r1, r3), odd_high = hn::InterleaveUpper(d, r1, r3);
  hn::Store(hn::InterleaveLower(d, even_low, odd_low), d, to);
  hn::Store(hn::InterleaveUpper(d, even_low, odd_low), d, to + ldt);
  hn::Store(hn::InterleaveLower(d, even_high, odd_high), d, to + 2 * ldt);
  hn::Store(hn::InterleaveUpper(d, even_high, odd_high), d, to + 3 * ldt);
}
HWY_INLINE void transpose_square(const double* from, int64_t ldf, double* to, int64_t ldt) {
  const hn::FixedTag<double, 2> d;
  const auto r0 = hn::Load(d, from), r1 = hn::Load(d, from + ldf);
  hn::Store(hn::InterleaveLower(d, r0, r1), d, to);
  hn::Store(hn::InterleaveUpper(d, r0, r1), d, to + ldt);
}
#endif

#if HWY_TARGET == HWY_AVX3
HWY_INLINE void transpose_square(const Pair* from, int64_t ldf, Pair* to, int64_t ldt) {
  transpose_square(reinterpret_cast<const float*>(from), ldf, reinterpret_cast<float*>(to), ldt);
}
#endif

/// to[j][i] = from[i][j] for i < rows and j < columns, both rounded up to kSide<C>.
template <class C>
HWY_INLINE void transpose(const C* HWY_RESTRICT from, int64_t ldf, int64_t rows, int64_t columns,
                          C* HWY_RESTRICT to, int64_t ldt) {
  for (int64_t i = 0; i < rows; i += kSide<C>) {
    for (int64_t j = 0; j < columns; j += kSide<C>) {
      transpose_square(from + i * ldf + j, ldf, to + j * ldt + i, ldt);
    }
  }
}

/// to[i] = from[i * stride ...] for `rows` rows of `width` numbers, which zeros fill up to whole
/// vectors.
template <class S, class C>
HWY_INLINE void load_tile(const S* from, int64_t stride, int64_t rows, int64_t width, C* to,
                          int64_t ldt) {
  const hn::ScalableTag<C> d;
  for (int64_t i = 0; i < rows; ++i) {
    each_vector(d, 0, width, [&](At at) HWY_ATTR {
      hn::Store(load(d, from + i * stride, at), d, to + i * ldt + at.i);
    });
  }
}

/// Loads the rows [first, first + rows) of a sequence and KV head from a (B, T, H, width) tensor;
/// the tile's other rows become 0.
template <class Tile, class S>
HWY_INLINE void load_rows(const AttentionSizes& p, int64_t b, int64_t kv_head, int64_t first,
                          int64_t rows, const S* from, int64_t width, typename Tile::Operand* to,
                          int64_t ldt) {
  for (int64_t r = 0; r < rows; ++r) {
    load_tile(from + p.index(b, kv_head, first + r) * width, 0, 1, width, to + r * ldt, ldt);
  }
  std::fill(to + rows * ldt, to + Tile::kRows * ldt, typename Tile::Operand(0));
}

/// Positions of a tile's rows relative to its first, as numbers a vector can compare.
template <class Tile, class C>
HWY_INLINE void row_positions(const AttentionSizes& p, int64_t b, int64_t first, C* to) {
  for (int64_t r = 0; r < Tile::kRows; ++r) {
    to[r] = static_cast<C>(p.position(b, first + r) - p.position(b, first));
  }
}

/// Whether rows at `positions` see the key at position j, all relative to position `origin`.
template <class D>
HWY_INLINE hn::Mask<D> sees(D d, const AttentionMask& mask, hn::Vec<D> positions, int64_t j,
                            int64_t origin) {
  using C = hn::TFromD<D>;
  const auto key = hn::Set(d, static_cast<C>(j - origin));
  const auto causal = hn::Le(key, positions);
  if (mask.window == 0 || j < mask.sinks) {
    return causal;
  }
  const auto newest_hidden = hn::Sub(positions, hn::Set(d, static_cast<C>(mask.window)));
  return hn::And(causal, hn::Gt(key, newest_hidden));
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
