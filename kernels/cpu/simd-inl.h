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
  const hn::RebindToSigned<D> wide_signed;
  const auto bits = hn::BitCast(wide, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1U));
  auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(wide, 0x7fffU)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(wide, 0x40U));
  rounded = hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(wide_signed, rounded)), narrow,
             reinterpret_cast<uint16_t*>(p));
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

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
