// Tiles of attention whose operands are pairs of bf16: loading, pairing along the other axis, and
// pairs of what was computed in f32. Included once per SIMD target, as simd-inl.h; only AVX-512 has
// the product.

#if defined(HEADROOM_ATTENTION_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_ATTENTION_PAIRS_INL_H_
#undef HEADROOM_ATTENTION_PAIRS_INL_H_
#else
#define HEADROOM_ATTENTION_PAIRS_INL_H_
#endif

#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/simd-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

template <bool kColumns, bool kAdd, int kVectors, class D>
HWY_INLINE void product(D /*d*/, int64_t m, int64_t depth, const Pair* a, int64_t lda,
                        const Pair* b, int64_t ldb, float* c, int64_t ldc) {
  pair_product<kColumns, kAdd, kVectors>(m, depth, a, lda, b, ldb, c, ldc);
}

/// As the load_tile() of numbers: pairs along a row.
HWY_INLINE void load_tile(const bf16* from, int64_t stride, int64_t rows, int64_t width, Pair* to,
                          int64_t ldt) {
  const hn::ScalableTag<uint16_t> d;
  for (int64_t i = 0; i < rows; ++i) {
    const auto* row = reinterpret_cast<const uint16_t*>(from + i * stride);
    auto* out = reinterpret_cast<uint16_t*>(to + i * ldt);
    each_vector(d, 0, width, [&](At at) HWY_ATTR { hn::Store(load(d, row, at), d, out + at.i); });
  }
}

/// Rows two by two: to[i / 2][:] = pairs of from[i][:] and from[i + 1][:], which is 0 where there
/// is no such row. `from` holds pairs along its rows, `width` numbers.
HWY_INLINE void pair_rows(const Pair* from, int64_t ldf, int64_t rows, int64_t width, Pair* to,
                          int64_t ldt) {
  const hn::ScalableTag<Pair> d;
  const hn::Rebind<uint16_t, decltype(d)> narrow;
  for (int64_t i = 0; i < rows; i += 2) {
    const auto* low = reinterpret_cast<const uint16_t*>(from + i * ldf);
    for (int64_t c = 0; c < width; c += static_cast<int64_t>(hn::Lanes(d))) {
      auto pair = hn::PromoteTo(d, hn::LoadU(narrow, low + c));
      if (i + 1 < rows) {
        const auto high = hn::PromoteTo(d, hn::LoadU(narrow, low + 2 * ldf + c));
        pair = hn::Or(pair, hn::ShiftLeft<16>(high));
      }
      hn::Store(pair, d, to + i / 2 * ldt + c);
    }
  }
}

/// Pairs of two vectors' lanes, rounded to bf16. They are weights and their gradients on the way
/// into a product: a tie may go either way.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> make_pairs(D d, hn::Vec<D> low, hn::Vec<D> high) {
  const hn::RebindToUnsigned<D> bits;
  const auto half = hn::Set(bits, 0x8000U), upper = hn::Set(bits, 0xffff0000U);
  return hn::OrAnd(hn::ShiftRight<16>(hn::Add(hn::BitCast(bits, low), half)),
                   hn::Add(hn::BitCast(bits, high), half), upper);
}

/// The lanes of two vectors, one after the other, rounded to bf16 in the same way.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> pairs_of_lanes(D d, hn::Vec<D> first,
                                                           hn::Vec<D> second) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Repartition<uint16_t, D> halves;
  const auto half = hn::Set(bits, 0x8000U);
  const auto rounded = [&](hn::Vec<D> v) HWY_ATTR {
    return hn::BitCast(halves, hn::Add(hn::BitCast(bits, v), half));
  };
  return hn::BitCast(bits, hn::ConcatOdd(halves, rounded(second), rounded(first)));
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard per target
