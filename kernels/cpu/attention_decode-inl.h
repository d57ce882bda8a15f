// The inner loops of attention with one query per sequence: products of a few queries with a few
// keys, and sums of a few values. Included once per SIMD target, as simd-inl.h.
//
// The lanes of a vector are the numbers of a head, as they lie in memory.

#if defined(HEADROOM_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_ATTENTION_DECODE_INL_H_
#undef HEADROOM_ATTENTION_DECODE_INL_H_
#else
#define HEADROOM_ATTENTION_DECODE_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
/// to[0 .. 4) = the sum of the blocks of four lanes.
template <class D>
HWY_INLINE void store_blocks_sum(D d, hn::Vec<D> v, float* to) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    store_blocks_sum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  } else {
    hn::StoreU(v, d, to);
  }
}
#endif

/// to[u] = the sum of the lanes of v[u].
template <int kKeys, class D, class C>
HWY_INLINE void store_sums(D d, const hn::Vec<D>* v, C* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kKeys == 4 && std::is_same_v<C, float>) {
    // Twice half as many partial sums, of two vectors side by side; then the blocks of four lanes.
    const auto fold = [&](hn::Vec<D> a, hn::Vec<D> b) HWY_ATTR {
      return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    };
    return store_blocks_sum(d, fold(fold(v[0], v[2]), fold(v[1], v[3])), to);
  }
#endif
  for (int u = 0; u < kKeys; ++u) {
    to[u] = sum_lanes(d, v[u]);
  }
}

/// to[g * ldt + u] = the product of query q + g * ldq with the key at rows[u].
template <int kHeads, int kKeys, class S, class C>
HWY_INLINE void multiply_keys(const C* q, int64_t ldq, const S* const* rows, int64_t size, C* to,
                              int64_t ldt) {
  const hn::ScalableTag<C> d;
  hn::Vec<decltype(d)> sum[kHeads][kKeys];
  for (auto& of_head : sum) {
    for (auto& s : of_head) {
      s = hn::Zero(d);
    }
  }
  each_vector(d, 0, size, [&](At at) HWY_ATTR {
    for (int u = 0; u < kKeys; ++u) {
      const auto key = load(d, rows[u], at);
      for (int g = 0; g < kHeads; ++g) {
        sum[g][u] = hn::MulAdd(hn::Load(d, q + g * ldq + at.i), key, sum[g][u]);
      }
    }
  });
  for (int g = 0; g < kHeads; ++g) {
    store_sums<kKeys>(d, sum[g], to + g * ldt);
  }
}

/// out + g * ldo += the values at rows[u], each times weights[g * ldw + u].
template <int kHeads, int kKeys, class S, class C>
HWY_INLINE void add_values(const C* weights, int64_t ldw, const S* const* rows, int64_t size,
                           C* out, int64_t ldo) {
  const hn::ScalableTag<C> d;
  hn::Vec<decltype(d)> weight[kHeads][kKeys];
  for (int g = 0; g < kHeads; ++g) {
    for (int u = 0; u < kKeys; ++u) {
      weight[g][u] = hn::Set(d, weights[g * ldw + u]);
    }
  }
  each_vector(d, 0, size, [&](At at) HWY_ATTR {
    hn::Vec<decltype(d)> value[kKeys];
    for (int u = 0; u < kKeys; ++u) {
      value[u] = load(d, rows[u], at);
    }
    for (int g = 0; g < kHeads; ++g) {
      C* to = out + g * ldo + at.i;
      auto sum = hn::Load(d, to);
      for (int u = 0; u < kKeys; ++u) {
        sum = hn::MulAdd(weight[g][u], value[u], sum);
      }
      hn::Store(sum, d, to);
    }
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
