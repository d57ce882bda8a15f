// Products with few rows, one dot product per weight row: each weight is read once, in order.
#include "kernels/cpu/few_rows.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

// M dot products with one row of weights, two vectors at a time: for M >= 2 that is enough
// independent chains; one row alone takes four.
template <int M, class S, class T>
HWY_INLINE void dot_row(const S* x, const S* w, int64_t k, int64_t n_out, T* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kChains = M == 1 ? 4 : 2;
  hn::Vec<decltype(d)> sum[M * kChains];
  for (auto& s : sum) {
    s = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + kChains * lanes <= k; i += kChains * lanes) {
    for (int c = 0; c < kChains; ++c) {
      const auto weights = load(d, w + i + c * lanes);
      for (int m = 0; m < M; ++m) {
        sum[m * kChains + c] =
            hn::MulAdd(load(d, x + m * k + i + c * lanes), weights, sum[m * kChains + c]);
      }
    }
  }
  each_vector(d, i, k, [&](At at) HWY_ATTR {
    const auto weights = load(d, w, at);
    for (int m = 0; m < M; ++m) {
      sum[m * kChains] = hn::MulAdd(load(d, x + m * k, at), weights, sum[m * kChains]);
    }
  });
  for (int m = 0; m < M; ++m) {
    auto total = sum[m * kChains];
    for (int c = 1; c < kChains; ++c) {
      total = hn::Add(total, sum[m * kChains + c]);
    }
    out[m * n_out] = T(sum_lanes(d, total));
  }
}

template <int M, class S, class T>
void rows_of(const Tensor& x, const Tensor& w, T* out) {
  if (x.dim(0) != M) {
    if constexpr (M > 1) {
      rows_of<M - 1, S, T>(x, w, out);
    }
    return;
  }
  const int64_t k = x.dim(1), n = w.dim(0);
  const S *px = x.data<S>(), *pw = w.data<S>();
  parallel_rows(n, k, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t j = begin; j < end; ++j) {
      dot_row<M, S, T>(px, pw + j * k, k, n, out + j);
    }
  });
}

void FewRows(const Tensor& x, const Tensor& w, Tensor& out) {
  constexpr int kRows = kFewRows;
  if (x.dtype() == DType::f32) {
    rows_of<kRows, float, float>(x, w, out.data<float>());
  } else if (out.dtype() == DType::f32) {
    rows_of<kRows, bf16, float>(x, w, out.data<float>());
  } else {
    rows_of<kRows, bf16, bf16>(x, w, out.data<bf16>());
  }
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(FewRows);

void few_rows(const Tensor& x, const Tensor& w, Tensor& out) {
  HWY_DYNAMIC_DISPATCH(FewRows)(x, w, out);
}

}  // namespace headroom::kernels::cpu
#endif
