// The arithmetic of optimizers: the gradient's norm, AdamW over all parameters in one sweep, and
// what Muon does beside its products.
#include <cmath>
#include <limits>
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
  const auto keep = constant(1 - step.lr * t.weight_decay),
             grad_scale = constant(step.grad_scale.item());
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

void MuonDirection(MuonTensors matrix, double mu, double grad_scale, Tensor direction) {
  for_type(direction.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S* pg = matrix.grad.data<S>();
    S *pm = matrix.momentum.data<S>(), *pd = direction.data<S>();
    parallel_ranges(direction.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      const auto keep = hn::Set(d, static_cast<C>(mu)),
                 factor = hn::Set(d, static_cast<C>(grad_scale));
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        const auto g = hn::Mul(factor, load(d, pg, at));
        const auto momentum = hn::MulAdd(keep, load(d, pm, at), g);
        store(momentum, d, pm, at);
        store(hn::MulAdd(keep, momentum, g), d, pd, at);
      });
    });
  });
}

void MuonUpdate(Tensor param, const Tensor& direction, double keep, double rate) {
  for_type(param.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S* pd = direction.data<S>();
    S* pw = param.data<S>();
    parallel_ranges(param.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      const auto kept = hn::Set(d, static_cast<C>(keep)), step = hn::Set(d, static_cast<C>(rate));
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        store(hn::NegMulAdd(step, load(d, pd, at), hn::Mul(kept, load(d, pw, at))), d, pw, at);
      });
    });
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(AdamW);
HWY_EXPORT(MuonDirection);
HWY_EXPORT(MuonUpdate);

void CpuBackend::sum_of_squares(std::span<const Tensor> tensors, Tensor& sum) {
  *sum.data<double>() = HWY_DYNAMIC_DISPATCH(SumOfSquares)(tensors);
}

void CpuBackend::clip_scale(const Tensor& sum_of_squares, double count, double max_norm,
                            Tensor& scale) {
  const double norm = std::sqrt(sum_of_squares.item()) / count;
  const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  *scale.data<double>() =
      std::isfinite(norm) ? clip / count : std::numeric_limits<double>::quiet_NaN();
}

void CpuBackend::adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) {
  if (!std::isnan(step.grad_scale.item())) {
    HWY_DYNAMIC_DISPATCH(AdamW)(tensors, step);
  }
}

void CpuBackend::muon_directions(std::span<const MuonTensors> matrices, double mu,
                                 const Tensor& grad_scale, Tensor& directions) {
  const double scale = grad_scale.item();
  for (size_t i = 0; i < matrices.size() && !std::isnan(scale); ++i) {
    const auto row = static_cast<int64_t>(i);
    HWY_DYNAMIC_DISPATCH(MuonDirection)(matrices[i], mu, scale, directions.rows(row, row + 1));
  }
}

void CpuBackend::unit_matrices(const Tensor& x, double eps, Tensor& y) {
  for (int64_t i = 0; i < x.dim(0); ++i) {
    const Tensor matrix = x.rows(i, i + 1);
    const double squares = HWY_DYNAMIC_DISPATCH(SumOfSquares)(std::span(&matrix, 1));
    scale(matrix, 1 / (std::sqrt(squares) + eps), {y.rows(i, i + 1)});
  }
}

void CpuBackend::muon_update(std::span<const MuonTensors> matrices, const Tensor& directions,
                             double keep, double rate, const Tensor& grad_scale) {
  for (size_t i = 0; i < matrices.size() && !std::isnan(grad_scale.item()); ++i) {
    const auto row = static_cast<int64_t>(i);
    HWY_DYNAMIC_DISPATCH(MuonUpdate)
    (matrices[i].param, directions.rows(row, row + 1), keep, rate);
  }
}

}  // namespace headroom::kernels::cpu
#endif
