// Cross-entropy over rows of logits, with the gradient in the same pass while the row is in cache.
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

// log sum exp of a row, shifted by its maximum.
template <class C>
HWY_INLINE C log_sum_exp(const C* x, int64_t width) {
  const hn::ScalableTag<C> d;
  const C lowest = -std::numeric_limits<C>::infinity();
  auto maximum = hn::Set(d, lowest);
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    maximum = hn::Max(maximum, mask_tail(d, load(d, x, at), at, lowest));
  });
  const C shift = hn::GetLane(hn::MaxOfLanes(d, maximum));
  const auto nat = hn::Set(d, kNat<C>);
  auto sum = hn::Zero(d);
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    const auto e = power_of(d, hn::Mul(hn::Sub(load(d, x, at), hn::Set(d, shift)), nat));
    sum = hn::Add(sum, mask_tail(d, e, at, C(0)));
  });
  return shift + std::log(sum_lanes(d, sum));
}

template <class S, class C>
HWY_INLINE void gradient_row(const C* x, int64_t width, C lse, int32_t target, C scale, S* dx) {
  const hn::ScalableTag<C> d;
  const auto shift = hn::Set(d, lse), factor = hn::Set(d, scale), nat = hn::Set(d, kNat<C>);
  const C hit = (std::exp(x[target] - lse) - C(1)) * scale;
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    const auto power = power_of(d, hn::Mul(hn::Sub(load(d, x, at), shift), nat));
    store(hn::Mul(power, factor), d, dx, at);
  });
  dx[target] = S(hit);
}

template <class S, class C>
void cross_entropy_rows(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                        S* dlogits) {
  const int64_t width = logits.dim(-1);
  const C* px = logits.data<C>();
  const int32_t* pt = targets.data<int32_t>();
  C* pl = losses.data<C>();
  parallel_rows(targets.numel(), width, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const C* row = px + r * width;
      if (pt[r] < 0) {
        pl[r] = 0;
        if (dlogits != nullptr) {
          std::fill_n(dlogits + r * width, width, S(C(0)));
        }
        continue;
      }
      const C lse = log_sum_exp(row, width);
      pl[r] = lse - row[pt[r]];
      if (dlogits != nullptr) {
        gradient_row<S, C>(row, width, lse, pt[r], static_cast<C>(scale), dlogits + r * width);
      }
    }
  });
}

void CrossEntropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                  Tensor& dlogits) {
  for_type(dlogits.defined() ? dlogits.dtype() : logits.dtype(), [&]<class S, class C>() HWY_ATTR {
    cross_entropy_rows<S, C>(logits, targets, scale, losses,
                             dlogits.defined() ? dlogits.data<S>() : nullptr);
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(CrossEntropy);

void CpuBackend::cross_entropy(const Tensor& logits, const Tensor& targets, double scale,
                               Tensor& losses, Tensor& dlogits) {
  HWY_DYNAMIC_DISPATCH(CrossEntropy)(logits, targets, scale, losses, dlogits);
}

void CpuBackend::sum(const Tensor& x, double factor, Tensor& total) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const S* first = x.data<S>();
    const double sum = std::accumulate(first, first + x.numel(), 0.0, [](double before, S value) {
      return before + static_cast<C>(value);
    });
    *total.data<S>() = S(static_cast<C>(factor * sum));
  });
}

}  // namespace headroom::kernels::cpu
#endif
