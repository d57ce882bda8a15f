// The arithmetic of optimizers: the gradient's norm, and AdamW over all parameters in one sweep.
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

// Partial sums of fixed pieces, added in order in f64: the result does not depend on the number of
// threads.
constexpr int64_t kPiece = 8192;

template <class S, class C>
double piece_sum(const S* x, int64_t n) {
  const hn::ScalableTag<C> d;
  auto sum = hn::Zero(d);
  each_vector(d, 0, n, [&](At at) HWY_ATTR {
    const auto v = load(d, x, at);
    sum = hn::MulAdd(v, v, sum);
  });
  return sum_lanes(d, sum);
}

double SumOfSquares(std::span<const Tensor> tensors) {
  std::vector<double> partial;
  for (const Tensor& t : tensors) {
    const size_t first = partial.size();
    partial.resize(first + static_cast<size_t>((t.numel() + kPiece - 1) / kPiece));
    for_type(t.dtype(), [&]<class S, class C>() HWY_ATTR {
      const S* x = t.data<S>();
      parallel_ranges(t.numel(), kPiece, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t i = begin; i < end; i += kPiece) {
          partial[first + static_cast<size_t>(i / kPiece)] =
              piece_sum<S, C>(x + i, std::min(kPiece, end - i));
        }
      });
    });
  }
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

template <class C>
void adamw_piece(AdamWTensors& t, const AdamWStep& step, int64_t begin, int64_t end) {
  const hn::ScalableTag<C> d;
  C *p = t.param.data<C>(), *pm = t.m.data<C>(), *pv = t.v.data<C>();
  const C* pg = t.grad.data<C>();
  const double bias1 = 1 - std::pow(step.beta1, step.step),
               bias2 = 1 - std::pow(step.beta2, step.step);
  const auto constant = [&](double x) HWY_ATTR { return hn::Set(d, static_cast<C>(x)); };
  const auto beta1 = constant(step.beta1), beta2 = constant(step.beta2);
  const auto rest1 = constant(1 - step.beta1), rest2 = constant(1 - step.beta2);
  const auto rate = constant(step.lr / bias1), root = constant(1 / std::sqrt(bias2)),
             eps = constant(step.eps);
  const auto keep = constant(1 - step.lr * t.weight_decay), grad_scale = constant(step.grad_scale);
  each_vector(d, begin, end, [&](At at) HWY_ATTR {
    const auto g = hn::Mul(load(d, pg, at), grad_scale);
    const auto m = hn::MulAdd(beta1, load(d, pm, at), hn::Mul(rest1, g));
    const auto v = hn::MulAdd(beta2, load(d, pv, at), hn::Mul(rest2, hn::Mul(g, g)));
    const auto update = hn::Div(hn::Mul(rate, m), hn::MulAdd(hn::Sqrt(v), root, eps));
    store(m, d, pm, at);
    store(v, d, pv, at);
    store(hn::Sub(hn::Mul(load(d, p, at), keep), update), d, p, at);
  });
}

void AdamW(std::span<const AdamWTensors> tensors, const AdamWStep& step) {
  for (AdamWTensors t : tensors) {
    parallel_ranges(t.param.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      if (t.param.dtype() == DType::f64) {
        adamw_piece<double>(t, step, begin, end);
      } else {
        adamw_piece<float>(t, step, begin, end);
      }
    });
  }
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(AdamW);

double CpuBackend::sum_of_squares(std::span<const Tensor> tensors) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(tensors);
}

void CpuBackend::adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) {
  HWY_DYNAMIC_DISPATCH(AdamW)(tensors, step);
}

}  // namespace headroom::kernels::cpu
#endif
