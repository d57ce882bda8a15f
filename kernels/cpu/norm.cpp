// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich, arXiv 1910.07467),
// with the residual addition before them in the same pass.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

// Mean and 1 / sd of one row. Two passes over a row that is in L1: the variance is exact also far
// from zero.
template <class S, class C>
HWY_INLINE void row_stats(NormKind kind, const S* x, int64_t width, C eps, C* stats) {
  const hn::ScalableTag<C> d;
  C mean = 0;
  if (kind == NormKind::layer_norm) {
    auto sum = hn::Zero(d);
    each_vector(d, 0, width, [&](At at) HWY_ATTR { sum = hn::Add(sum, load(d, x, at)); });
    mean = sum_lanes(d, sum) / static_cast<C>(width);
  }
  auto squares = hn::Zero(d);
  const auto center = hn::Set(d, mean);
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    const auto v = mask_tail(d, hn::Sub(load(d, x, at), center), at, C(0));
    squares = hn::MulAdd(v, v, squares);
  });
  stats[0] = mean;
  stats[1] = C(1) / std::sqrt(sum_lanes(d, squares) / static_cast<C>(width) + eps);
}

template <class S, class C>
HWY_INLINE void norm_row(const S* x, const C* w, const C* b, const C* stats, int64_t width, S* y) {
  const hn::ScalableTag<C> d;
  const auto mean = hn::Set(d, stats[0]), rstd = hn::Set(d, stats[1]);
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    auto v = hn::Mul(hn::Sub(load(d, x, at), mean), rstd);
    v = w == nullptr ? v : hn::Mul(v, load(d, w, at));
    v = b == nullptr ? v : hn::Add(v, load(d, b, at));
    store(v, d, y, at);
  });
}

template <class C>
const C* optional_data(const Tensor& t) {
  return t.defined() ? t.data<C>() : nullptr;
}

void Forward(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
             const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const int64_t width = x.dim(-1), rows = x.numel() / width;
    const S *px = x.data<S>(), *pr = optional_data<S>(residual);
    const C *pw = optional_data<C>(w), *pb = optional_data<C>(b);
    S *psum = residual.defined() ? sum.data<S>() : nullptr, *py = y.data<S>();
    C* pstats = stats.data<C>();
    parallel_rows(rows, width, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      for (int64_t r = begin; r < end; ++r) {
        const S* row = px + r * width;
        if (pr != nullptr) {
          const S* other = pr + r * width;
          S* out = psum + r * width;
          each_vector(d, 0, width, [&](At at) HWY_ATTR {
            store(hn::Add(load(d, row, at), load(d, other, at)), d, out, at);
          });
          row = out;
        }
        row_stats<S, C>(kind, row, width, static_cast<C>(eps), pstats + 2 * r);
        norm_row<S, C>(row, pw, pb, pstats + 2 * r, width, py + r * width);
      }
    });
  });
}

// With n = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - n mean(g n)); rms norm has no
// mean(g).
template <class S, class C>
HWY_INLINE void backward_row(NormKind kind, const S* x, const C* w, const C* stats, const S* dy,
                             const S* dsum, int64_t width, S* dx, bool add) {
  const hn::ScalableTag<C> d;
  const auto mean = hn::Set(d, stats[0]), rstd = hn::Set(d, stats[1]);
  const auto gradient = [&](At at) HWY_ATTR {
    const auto g = load(d, dy, at);
    return w == nullptr ? g : hn::Mul(g, load(d, w, at));
  };
  auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    const auto g = gradient(at), n = hn::Mul(hn::Sub(load(d, x, at), mean), rstd);
    sum_g = hn::Add(sum_g, g);
    sum_gn = hn::MulAdd(g, n, sum_gn);
  });
  const C inverse = C(1) / static_cast<C>(width);
  const auto mean_g =
      hn::Set(d, kind == NormKind::layer_norm ? sum_lanes(d, sum_g) * inverse : C(0));
  const auto mean_gn = hn::Set(d, sum_lanes(d, sum_gn) * inverse);
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    const auto n = hn::Mul(hn::Sub(load(d, x, at), mean), rstd);
    auto v = hn::Mul(rstd, hn::NegMulAdd(n, mean_gn, hn::Sub(gradient(at), mean_g)));
    v = dsum == nullptr ? v : hn::Add(v, load(d, dsum, at));
    store_into(v, d, dx, at, add);
  });
}

void BackwardInput(NormKind kind, const Tensor& x, const Tensor& w, const Tensor& stats,
                   const Tensor& dy, const Tensor& dsum, const Into& dx) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const int64_t width = x.dim(-1), rows = x.numel() / width;
    const S *px = x.data<S>(), *pdy = dy.data<S>(), *pdsum = optional_data<S>(dsum);
    const C *pw = optional_data<C>(w), *pstats = stats.data<C>();
    S* pdx = dx.data<S>();
    parallel_rows(rows, width, [&](int64_t begin, int64_t end) HWY_ATTR {
      for (int64_t r = begin; r < end; ++r) {
        backward_row<S, C>(kind, px + r * width, pw, pstats + 2 * r, pdy + r * width,
                           pdsum == nullptr ? nullptr : pdsum + r * width, width, pdx + r * width,
                           dx.add);
      }
    });
  });
}

// dw and db: threads share out the columns in panels of 64, so each sum runs over the rows in
// order.
void BackwardWeights(const Tensor& x, const Tensor& stats, const Tensor& dy, const Into& dw,
                     const Into& db) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const int64_t width = x.dim(-1), rows = x.numel() / width;
    const S *px = x.data<S>(), *pdy = dy.data<S>();
    const C* pstats = stats.data<C>();
    C *pdw = dw.wanted() ? dw.data<C>() : nullptr, *pdb = db.wanted() ? db.data<C>() : nullptr;
    parallel_ranges(width, 64, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        auto sum_w = hn::Zero(d), sum_b = hn::Zero(d);
        for (int64_t r = 0; r < rows; ++r) {
          const auto g = load(d, pdy + r * width, at);
          const auto n = hn::Mul(hn::Sub(load(d, px + r * width, at), hn::Set(d, pstats[2 * r])),
                                 hn::Set(d, pstats[2 * r + 1]));
          sum_w = hn::MulAdd(g, n, sum_w);
          sum_b = hn::Add(sum_b, g);
        }
        if (pdw != nullptr) {
          store_into(sum_w, d, pdw, at, dw.add);
        }
        if (pdb != nullptr) {
          store_into(sum_b, d, pdb, at, db.add);
        }
      });
    });
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(Forward);
HWY_EXPORT(BackwardInput);
HWY_EXPORT(BackwardWeights);

void CpuBackend::norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
                      const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) {
  HWY_DYNAMIC_DISPATCH(Forward)(kind, x, residual, w, b, eps, sum, y, stats);
}

void CpuBackend::norm_backward(NormKind kind, const Tensor& sum, const Tensor& w,
                               const Tensor& stats, const Tensor& dy, const Tensor& dsum,
                               const Into& dx, const Into& dw, const Into& db) {
  if (dw.wanted() || db.wanted()) {  // first: dx may overwrite dy
    HWY_DYNAMIC_DISPATCH(BackwardWeights)(sum, stats, dy, dw, db);
  }
  if (dx.wanted()) {
    HWY_DYNAMIC_DISPATCH(BackwardInput)(kind, sum, w, stats, dy, dsum, dx);
  }
}

}  // namespace headroom::kernels::cpu
#endif
