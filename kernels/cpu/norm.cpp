// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich, arXiv 1910.07467),
// with the residual addition before them in the same pass.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/column_sums-inl.h"

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

// A row on its way back.
template <class S, class C>
struct BackwardRow {
  NormKind kind;
  const S *x, *dy, *dsum;  // dsum or null
  const C *w, *stats;      // w or null
  int64_t width;

  using D = hn::ScalableTag<C>;
  HWY_INLINE hn::Vec<D> normed(At at) const {
    const D d;
    return hn::Mul(hn::Sub(load(d, x, at), hn::Set(d, stats[0])), hn::Set(d, stats[1]));
  }
  HWY_INLINE hn::Vec<D> gradient(At at) const {
    const D d;
    const auto g = load(d, dy, at);
    return w == nullptr ? g : hn::Mul(g, load(d, w, at));
  }

  /// dw += dy n and db += dy, where they are wanted.
  HWY_INLINE void add_to_weights(C* dw, C* db) const {
    each_vector(D(), 0, width, [&](At at) HWY_ATTR {
      const auto g = load(D(), dy, at);
      if (dw != nullptr) {
        ColumnSums<C>::add(hn::Mul(g, normed(at)), dw, at);
      }
      if (db != nullptr) {
        ColumnSums<C>::add(g, db, at);
      }
    });
  }

  /// With n = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - n mean(g n)); rms norm has no
  /// mean(g).
  HWY_INLINE void write(S* dx, bool add) const {
    const D d;
    auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
    each_vector(d, 0, width, [&](At at) HWY_ATTR {
      const auto g = gradient(at);
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::MulAdd(g, normed(at), sum_gn);
    });
    const C inverse = C(1) / static_cast<C>(width);
    const auto mean_g =
        hn::Set(d, kind == NormKind::layer_norm ? sum_lanes(d, sum_g) * inverse : C(0));
    const auto mean_gn = hn::Set(d, sum_lanes(d, sum_gn) * inverse);
    each_vector(d, 0, width, [&](At at) HWY_ATTR {
      const auto g = hn::NegMulAdd(normed(at), mean_gn, hn::Sub(gradient(at), mean_g));
      auto v = hn::Mul(hn::Set(d, stats[1]), g);
      v = dsum == nullptr ? v : hn::Add(v, load(d, dsum, at));
      store_into(v, d, dx, at, add);
    });
  }
};

/// Everything in one pass over the rows; dx may overwrite dy.
void Backward(NormKind kind, const Tensor& x, const Tensor& w, const Tensor& stats,
              const Tensor& dy, const Tensor& dsum, const Into& dx, const Into& dw,
              const Into& db) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const int64_t width = x.dim(-1), rows = x.numel() / width;
    const S *px = x.data<S>(), *pdy = dy.data<S>(), *pdsum = optional_data<S>(dsum);
    const C *pw = optional_data<C>(w), *pstats = stats.data<C>();
    S* pdx = dx.wanted() ? dx.data<S>() : nullptr;
    const auto row_at = [&](int64_t r) {
      const int64_t at = r * width;
      return BackwardRow<S, C>{
          kind, px + at,        pdy + at, pdsum == nullptr ? nullptr : pdsum + at,
          pw,   pstats + 2 * r, width};
    };
    if (!dw.wanted() && !db.wanted()) {
      parallel_rows(rows, width, [&](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t r = begin; r < end; ++r) {
          row_at(r).write(pdx + r * width, dx.add);
        }
      });
      return;
    }
    ColumnSums<C> sums(rows, width, 2);
    sums.each_row([&](int64_t r, C* part) HWY_ATTR {
      const BackwardRow<S, C> row = row_at(r);
      row.add_to_weights(dw.wanted() ? part : nullptr,
                         db.wanted() ? part + sums.stride() : nullptr);
      if (pdx != nullptr) {
        row.write(pdx + r * width, dx.add);
      }
    });
    sums.write(0, dw);
    sums.write(1, db);
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

void CpuBackend::norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
                      const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) {
  HWY_DYNAMIC_DISPATCH(Forward)(kind, x, residual, w, b, eps, sum, y, stats);
}

void CpuBackend::norm_backward(NormKind kind, const Tensor& sum, const Tensor& w,
                               const Tensor& stats, const Tensor& dy, const Tensor& dsum,
                               const Into& dx, const Into& dw, const Into& db) {
  HWY_DYNAMIC_DISPATCH(Backward)(kind, sum, w, stats, dy, dsum, dx, dw, db);
}

}  // namespace headroom::kernels::cpu
#endif
