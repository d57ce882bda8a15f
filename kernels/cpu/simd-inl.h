// Loads and stores of activations as vectors of the compute type. Included once per SIMD target by
// each kernel file, between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE's files; see Highway's
// "quick reference".
//
// A kernel file defines HWY_TARGET_INCLUDE, includes <hwy/foreach_target.h> and then this header.

#if defined(HEADROOM_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_SIMD_INL_H_
#undef HEADROOM_SIMD_INL_H_
#else
#define HEADROOM_SIMD_INL_H_
#endif

#include <hwy/highway.h>
// after highway.h
#include <hwy/contrib/math/math-inl.h>

#include <cstring>

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Elements p[0 .. lanes) in the compute type of the tag d.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* p) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16* p) {
  const hn::Rebind<hwy::float16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(p)));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const int8_t* p) {
  const hn::Rebind<int8_t, D> narrow;
  const hn::RebindToSigned<D> wide;
  return hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(narrow, p)));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}
/// Rounds to nearest even, as bf16's constructor does.
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D /*d*/, bf16* p) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  const auto bits = hn::BitCast(wide, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1U));
  auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(wide, 0x7fffU)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(wide, 0x40U));
  rounded = hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(narrow, rounded), narrow, reinterpret_cast<uint16_t*>(p));
}

/// The first n < lanes elements, the rest 0.
template <class D, class S>
HWY_INLINE hn::Vec<D> load_n(D d, const S* p, int64_t n) {
  S buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(S));
  return load(d, buffer);
}
template <class D, class S>
HWY_INLINE void store_n(hn::Vec<D> v, D d, S* p, int64_t n) {
  S buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(S));
}

/// Where a loop over n elements stands: element i, and how many of the vector's lanes are real.
struct At {
  int64_t i;
  int64_t n;  // 0: all lanes
};
template <class D, class S>
HWY_INLINE hn::Vec<D> load(D d, const S* p, At at) {
  return at.n == 0 ? load(d, p + at.i) : load_n(d, p + at.i, at.n);
}
template <class D, class S>
HWY_INLINE void store(hn::Vec<D> v, D d, S* p, At at) {
  if (at.n == 0) {
    store(v, d, p + at.i);
  } else {
    store_n(v, d, p + at.i, at.n);
  }
}
/// y (+)= v.
template <class D, class S>
HWY_INLINE void store_into(hn::Vec<D> v, D d, S* p, At at, bool add) {
  store(add ? hn::Add(v, load(d, p, at)) : v, d, p, at);
}

/// Calls f(At) for each vector of [begin, end): whole ones, then the rest.
template <class D, class F>
HWY_INLINE void each_vector(D d, int64_t begin, int64_t end, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    f(At{i, 0});
  }
  if (i < end) {
    f(At{i, end - i});
  }
}

/// Lanes of a load_n tail that must not count in a maximum.
template <class D>
HWY_INLINE hn::Vec<D> mask_tail(D d, hn::Vec<D> v, At at, hn::TFromD<D> other) {
  return at.n == 0 ? v
                   : hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(at.n)), v, hn::Set(d, other));
}

template <class D>
HWY_INLINE hn::TFromD<D> sum_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

/// What one nat is in the exponent of power_of().
template <class C>
inline constexpr C kNat = sizeof(C) == sizeof(double) ? C(1) : C(1.4426950408889634);

/// exp(x / kNat) for x that is at most a little above 0, with an error of 1e-7 of exp(0); 0 where
/// it is below the smallest normal number.
template <class D>
HWY_INLINE hn::Vec<D> power_of(D d, hn::Vec<D> x) {
  using C = hn::TFromD<D>;
  if constexpr (sizeof(C) == sizeof(double)) {
    return hn::Exp(d, x);
  } else {
    // 2^n 2^f with |f| <= 1/2, 2^f by the polynomial of degree 6 whose largest relative error,
    // 2e-9, is the least (Remez). A third of the work of hn::Exp, which takes any x.
    // Beyond 2^23 a number has no fraction: adding 1.5 * 2^23 rounds to n and leaves it in the
    // lowest bits.
    const auto shift = hn::Set(d, C(0x1.8p23));
    const auto shifted = hn::Add(x, shift);
    const auto f = hn::Sub(x, hn::Sub(shifted, shift));
    auto power = hn::Set(d, C(1.534581242595e-4));
    for (const double c : {1.339993090369e-3, 9.618489071727e-3, 5.550328642130e-2,
                           2.402264624834e-1, 6.931471824646e-1, 1.0}) {
      power = hn::MulAdd(power, f, hn::Set(d, static_cast<C>(c)));
    }
    const hn::RebindToSigned<D> integers;
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(integers, shifted));
    const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(integers, power), exponent));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, C(-125))), scaled);
  }
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
