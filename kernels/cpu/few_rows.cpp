// Products with few rows: each weight is read once, in order, widened in registers, and meets all
// rows while it is there.
#include "kernels/cpu/few_rows.h"

#include <hwy/cache_control.h>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// Rows of weights that are read side by side: as many independent sums as hide the latency of a
/// multiply-add, and their totals are one vector of four.
constexpr int64_t kSide = 4;
/// Rows of x whose sums, with those of kSide rows of weights, fit the registers.
constexpr int64_t kMostTogether = HWY_TARGET == HWY_AVX3 ? 4 : 2;
/// Rows of x that stay in the second cache while weights pass by.
constexpr int64_t kRowsInCache = 32;

#if HWY_TARGET == HWY_SCALAR
template <class D>
HWY_INLINE void totals(D, const hn::Vec<D> (&sum)[kSide], float* out) {
  for (int64_t r = 0; r < kSide; ++r) {
    out[r] = hn::GetLane(sum[r]);
  }
}
#else
/// v with its upper half added to its lower one until four lanes are left.
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> fold(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
/// The sums over the lanes of four vectors, together: 13 steps where one by one takes 32.
template <class D>
HWY_INLINE void totals(D d, const hn::Vec<D> (&sum)[kSide], float* out) {
  const auto add_pairs = [&](hn::Vec<D> a, hn::Vec<D> b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const hn::RepartitionToWide<D> pairs;
  const auto low = hn::BitCast(pairs, add_pairs(sum[0], sum[1]));
  const auto high = hn::BitCast(pairs, add_pairs(sum[2], sum[3]));
  const auto all = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                           hn::BitCast(d, hn::InterleaveUpper(pairs, low, high)));
  hn::StoreU(fold(d, all), hn::FixedTag<float, 4>(), out);
}
#endif

/// Asks for the lines of a stretch of `bytes` bytes at `from + at`, `at` growing by `bytes` from 0.
template <int64_t kBytes>
HWY_INLINE void prefetch_stretch(const char* from, int64_t at) {
  constexpr int64_t kLine = 64;
  if constexpr (kBytes >= kLine) {
    for (int64_t line = 0; line < kBytes; line += kLine) {
      hwy::Prefetch(from + at + line);
    }
  } else if (at % kLine == 0) {
    hwy::Prefetch(from + at);
  }
}

/// out[m][r] = x[m] . w[r] for M rows of x, k apart, and kSide rows of weights. Meanwhile memory is
/// asked for what lies at `ahead`: rows are too short for the processor to foresee the next ones.
template <int64_t M, class W>
HWY_INLINE void dot_products(const float* HWY_RESTRICT x, const W* const (&w)[kSide], int64_t k,
                             const W* ahead, float (&out)[M][kSide]) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  hn::Vec<decltype(d)> sum[M][kSide];
  for (auto& row : sum) {
    for (auto& s : row) {
      s = hn::Zero(d);
    }
  }
  each_vector(d, 0, k, [&](At at) HWY_ATTR {
    prefetch_stretch<kSide * kLanes* static_cast<int64_t>(sizeof(W))>(
        reinterpret_cast<const char*>(ahead), at.i * kSide * static_cast<int64_t>(sizeof(W)));
    hn::Vec<decltype(d)> xs[M];
    for (int64_t m = 0; m < M; ++m) {
      xs[m] = load(d, x + m * k, at);
    }
    for (int64_t r = 0; r < kSide; ++r) {
      const auto weights = load(d, w[r], at);
      for (int64_t m = 0; m < M; ++m) {
        sum[m][r] = hn::MulAdd(xs[m], weights, sum[m][r]);
      }
    }
  });
  for (int64_t m = 0; m < M; ++m) {
    totals(d, sum[m], out[m]);
  }
}

/// One matrix, its scales, what is added to its products and where they go.
template <class W, class T>
struct Product {
  const float* x;  // (m, k)
  int64_t m, k, n;
  const W* w;           // (n, k)
  const float* scales;  // (n) or absent
  const T* bias;        // (n) or absent
  T* y;                 // (m, n)
};

/// Rows [j, j + rows) of the weights with rows [first, first + M) of x.
template <int64_t M, class W, class T>
HWY_INLINE void multiply(const Product<W, T>& p, int64_t first, int64_t j, int64_t rows) {
  const W* side[kSide];
  for (int64_t r = 0; r < kSide; ++r) {
    side[r] = p.w + (j + std::min(r, rows - 1)) * p.k;  // beyond the end: the last one again
  }
  float sums[M][kSide];
  dot_products<M>(p.x + first * p.k, side, p.k, p.w + (j + kSide) * p.k, sums);
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t r = 0; r < rows; ++r) {
      const float sum = p.scales == nullptr ? sums[m][r] : sums[m][r] * p.scales[j + r];
      const float bias = p.bias == nullptr ? 0 : static_cast<float>(p.bias[j + r]);
      p.y[(first + m) * p.n + j + r] = T(sum + bias);
    }
  }
}

template <int64_t M, class W, class T>
HWY_INLINE void multiply_up_to(int64_t count, const Product<W, T>& p, int64_t first, int64_t j,
                               int64_t rows) {
  if (count == M) {
    multiply<M>(p, first, j, rows);
  } else if constexpr (M > 1) {
    multiply_up_to<M - 1>(count, p, first, j, rows);
  }
}

/// Rows [begin, end) of the weights with all rows of x.
template <class W, class T>
HWY_NOINLINE void multiply_rows(const Product<W, T>& p, int64_t begin, int64_t end) {
  constexpr int64_t kMostParts = (kRowsInCache + kMostTogether - 1) / kMostTogether;
  const int64_t parts = (p.m + kMostTogether - 1) / kMostTogether;
  int64_t first[kMostParts + 1];
  for (int64_t part = 0; part <= parts; ++part) {
    first[part] = p.m * part / parts;
  }
  for (int64_t j = begin; j < end; j += kSide) {
    for (int64_t part = 0; part < parts; ++part) {
      multiply_up_to<kMostTogether>(first[part + 1] - first[part], p, first[part], j,
                                    std::min(kSide, end - j));
    }
  }
}

template <class T>
void multiply_range(const Tensor& x, const Weights& w, Tensor& y, int64_t begin, int64_t end) {
  const int64_t n = w.values.dim(0), k = w.values.dim(1);
  const T* bias = w.bias.defined() ? w.bias.data<T>() : nullptr;
  const auto run = [&]<class W>(const W* values, const float* scales) {
    for (int64_t row = 0; row < x.dim(0); row += kRowsInCache) {
      const int64_t rows = std::min(kRowsInCache, x.dim(0) - row);
      multiply_rows(Product<W, T>{x.data<float>() + row * k, rows, k, n, values, scales, bias,
                                  y.data<T>() + row * n},
                    begin, end);
    }
  };
  switch (w.values.dtype()) {
    case DType::f32:
      return run(w.values.data<float>(), nullptr);
    case DType::bf16:
      return run(w.values.data<bf16>(), nullptr);
    default:
      return run(w.values.data<int8_t>(), w.scales.data<float>());
  }
}

void FewRows(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) {
  int64_t total = 0;
  for (const Weights& each : w) {
    total += each.values.dim(0);
  }
  const int64_t k = x.dim(1);
  // Threads take stretches of the matrices as if those lay one after another.
  const int64_t grain = total * k < kElementGrain ? std::max<int64_t>(1, total) : kSide;
  parallel_ranges(total, grain, [&](int64_t begin, int64_t end) {
    int64_t before = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const int64_t n = w[i].values.dim(0);
      const int64_t from = std::clamp<int64_t>(begin - before, 0, n);
      const int64_t to = std::clamp<int64_t>(end - before, 0, n);
      if (y[i].dtype() == DType::f32) {
        multiply_range<float>(x, w[i], y[i], from, to);
      } else {
        multiply_range<bf16>(x, w[i], y[i], from, to);
      }
      before += n;
    }
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(FewRows);

void few_rows(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) {
  Tensor wide = x;
  if (x.dtype() == DType::bf16) {
    wide = Tensor::empty(x.shape(), DType::f32);
    backend(kCpu).cast(x, wide);
  }
  HWY_DYNAMIC_DISPATCH(FewRows)(wide, w, y);
}

}  // namespace headroom::kernels::cpu
#endif
