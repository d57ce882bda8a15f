// Products with few rows: each weight is read once, in order, and meets all rows while it is there:
// widened in registers, or as it is where the processor multiplies narrow numbers (few_rows_dot.h).
#include "kernels/cpu/few_rows.h"

#include <optional>

#include "kernels/cpu/few_rows_dot.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/threads.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

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

/// out[m][r] = x[m] . w[r] for M rows of x, k apart, and kSide rows of weights.
template <int64_t M, class W>
HWY_INLINE void dot_products(const float* HWY_RESTRICT x, const W* const (&w)[kSide], int64_t k,
                             float (&out)[M][kSide]) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kBytes = hn::MaxLanes(hn::ScalableTag<float>()) * sizeof(W);
  hn::Vec<decltype(d)> sum[M][kSide];
  for (auto& row : sum) {
    for (auto& s : row) {
      s = hn::Zero(d);
    }
  }
  each_vector(d, 0, k, [&](At at) HWY_ATTR {
    ask_ahead(w[0], k * static_cast<int64_t>(sizeof(W)), at.i * static_cast<int64_t>(sizeof(W)),
              kBytes);
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

// Rows of activations and of weights in a form that is multiplied: kMost rows of activations at
// once, whose sums, with those of kSide rows of weights, fit the registers.

/// Weights of any type, widened.
template <class W>
struct Widened {
  using Weight = W;
  static constexpr int64_t kMost = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  const float* x;
  const W* w;

  template <int64_t M>
  HWY_INLINE void multiply(int64_t first, const W* const (&side)[kSide], int64_t k,
                           float (&out)[M][kSide]) const {
    dot_products<M>(x + first * k, side, k, out);
  }
};

/// Where the processor's own dot products may be used: they belong to AVX-512.
constexpr bool kDots = HWY_TARGET == HWY_AVX3;

struct Pairs {
  using Weight = bf16;
  static constexpr int64_t kMost = kMostPairRows;
  const bf16* x;
  const bf16* w;

  template <int64_t M>
  void multiply(int64_t first, const bf16* const (&side)[kSide], int64_t k,
                float (&out)[M][kSide]) const {
    pair_products<M>(x + first * k, side, k, out);
  }
};

struct Bytes {
  using Weight = int8_t;
  static constexpr int64_t kMost = kMostByteRows;
  const ByteRows& x;
  const int8_t* w;

  template <int64_t M>
  void multiply(int64_t first, const int8_t* const (&side)[kSide], int64_t k,
                float (&out)[M][kSide]) const {
    byte_products<M>(x, first, side, k, out);
  }
};

/// One matrix, its scales, what is added to its products and where they go.
template <class F, class T>
struct Product {
  F factors;
  int64_t k, n;
  const float* scales;  // (n) or absent
  const T* bias;        // (n) or absent
  T* y;                 // (m, n)
};

/// Rows [j, j + rows) of the weights with rows [first, first + M) of x.
template <int64_t M, class F, class T>
HWY_INLINE void multiply(const Product<F, T>& p, int64_t first, int64_t j, int64_t rows) {
  const auto* const w = p.factors.w;
  const typename F::Weight* side[kSide];
  for (int64_t r = 0; r < kSide; ++r) {
    side[r] = w + (j + std::min(r, rows - 1)) * p.k;  // beyond the end: the last one again
  }
  float sums[M][kSide];
  p.factors.template multiply<M>(first, side, p.k, sums);
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t r = 0; r < rows; ++r) {
      const float sum = p.scales == nullptr ? sums[m][r] : sums[m][r] * p.scales[j + r];
      const float bias = p.bias == nullptr ? 0 : static_cast<float>(p.bias[j + r]);
      p.y[(first + m) * p.n + j + r] = T(sum + bias);
    }
  }
}

template <int64_t M, class F, class T>
HWY_INLINE void multiply_up_to(int64_t count, const Product<F, T>& p, int64_t first, int64_t j,
                               int64_t rows) {
  if (count == M) {
    multiply<M>(p, first, j, rows);
  } else if constexpr (M > 1) {
    multiply_up_to<M - 1>(count, p, first, j, rows);
  }
}

/// Rows [begin, end) of the weights with rows [from, from + m) of x.
template <class F, class T>
HWY_NOINLINE void multiply_rows(const Product<F, T>& p, int64_t from, int64_t m, int64_t begin,
                                int64_t end) {
  constexpr int64_t kMostParts = (kRowsInCache + F::kMost - 1) / F::kMost;
  const int64_t parts = (m + F::kMost - 1) / F::kMost;
  int64_t first[kMostParts + 1];
  for (int64_t part = 0; part <= parts; ++part) {
    first[part] = from + m * part / parts;
  }
  for (int64_t j = begin; j < end; j += kSide) {
    for (int64_t part = 0; part < parts; ++part) {
      multiply_up_to<F::kMost>(first[part + 1] - first[part], p, first[part], j,
                               std::min(kSide, end - j));
    }
  }
}

/// The rows of x in the forms that the weights ask for.
class Rows {
 public:
  Rows(const Tensor& x, std::span<const Weights> w) : x_(x) {
    for (const Weights& each : w) {
      if (takes_bytes(each)) {
        if constexpr (kDots) {
          bytes_ = bytes_.has_value() ? bytes_ : ByteRows(x);
        }
      } else if (!takes_pairs(each) && !wide_.defined()) {
        wide_ = x.dtype() == DType::f32 ? x : widened(x);
      }
    }
  }

  /// y = x w^T for rows [begin, end) of the weights.
  template <class T>
  void multiply(const Weights& w, Tensor& y, int64_t begin, int64_t end) const {
    if constexpr (kDots) {
      if (takes_bytes(w)) {
        return run<T>(Bytes{*bytes_, w.values.data<int8_t>()}, w, y, begin, end);
      }
      if (takes_pairs(w)) {
        return run<T>(Pairs{x_.data<bf16>(), w.values.data<bf16>()}, w, y, begin, end);
      }
    }
    const float* x = wide_.data<float>();
    switch (w.values.dtype()) {
      case DType::f32:
        return run<T>(Widened<float>{x, w.values.data<float>()}, w, y, begin, end);
      case DType::bf16:
        return run<T>(Widened<bf16>{x, w.values.data<bf16>()}, w, y, begin, end);
      default:
        return run<T>(Widened<int8_t>{x, w.values.data<int8_t>()}, w, y, begin, end);
    }
  }

 private:
  bool takes_bytes([[maybe_unused]] const Weights& w) const {
    if constexpr (kDots) {
      return w.values.dtype() == DType::i8 && ByteRows::fit(x_.dim(1));
    }
    return false;
  }
  bool takes_pairs(const Weights& w) const {
    return kDots && w.values.dtype() == DType::bf16 && x_.dtype() == DType::bf16 &&
           has_native_bf16();
  }
  static Tensor widened(const Tensor& x) {
    Tensor wide = Tensor::empty(x.shape(), DType::f32);
    backend(kCpu).cast(x, wide);
    return wide;
  }

  template <class T, class F>
  void run(const F& factors, const Weights& w, Tensor& y, int64_t begin, int64_t end) const {
    const Product<F, T> product{factors,
                                w.values.dim(1),
                                w.values.dim(0),
                                w.scales.defined() ? w.scales.data<float>() : nullptr,
                                w.bias.defined() ? w.bias.data<T>() : nullptr,
                                y.data<T>()};
    for (int64_t row = 0; row < x_.dim(0); row += kRowsInCache) {
      multiply_rows(product, row, std::min(kRowsInCache, x_.dim(0) - row), begin, end);
    }
  }

  Tensor x_, wide_;
  std::optional<ByteRows> bytes_;
};

void FewRows(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) {
  int64_t total = 0;
  for (const Weights& each : w) {
    total += each.values.dim(0);
  }
  const int64_t k = x.dim(1);
  const Rows rows(x, w);
  // Threads take stretches of the matrices as if those lay one after another.
  const int64_t grain = total * k < kElementGrain ? std::max<int64_t>(1, total) : kSide;
  parallel_ranges(total, grain, [&](int64_t begin, int64_t end) {
    int64_t before = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const int64_t n = w[i].values.dim(0);
      const int64_t from = std::clamp<int64_t>(begin - before, 0, n);
      const int64_t to = std::clamp<int64_t>(end - before, 0, n);
      if (y[i].dtype() == DType::f32) {
        rows.multiply<float>(w[i], y[i], from, to);
      } else {
        rows.multiply<bf16>(w[i], y[i], from, to);
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
  HWY_DYNAMIC_DISPATCH(FewRows)(x, w, y);
}

}  // namespace headroom::kernels::cpu
#endif
