// What choosing a token asks of its logits, which a large vocabulary makes a loop over 50 000
// numbers in every decode step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sampling.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// Elements that one thread takes at a time. Their sums are joined in order.
constexpr int64_t kStretch = 4096;

/// exp(x) for x up to 0, minus infinity among them, where Highway's isn't defined.
template <class D>
HWY_INLINE hn::Vec<D> exp_of(D d, hn::Vec<D> x) {
  return hn::Exp(d, hn::Max(x, hn::Set(d, std::numeric_limits<hn::TFromD<D>>::lowest())));
}

template <class C>
struct Stretch {
  C most;  // the largest element
  C sum;   // of exp(element - most)
  bool numbers;
};

template <class C>
HWY_INLINE Stretch<C> summarize(const C* x, int64_t begin, int64_t end) {
  const hn::ScalableTag<C> d;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  const auto infinity = hn::Set(d, kInfinity);
  auto most = hn::Set(d, -kInfinity);
  bool numbers = true;
  each_vector(d, begin, end, [&](At at) HWY_ATTR {
    const auto v = mask_tail(d, load(d, x, at), at, -kInfinity);
    numbers = numbers && hn::AllTrue(d, hn::Lt(v, infinity));
    most = hn::Max(most, v);
  });
  most = hn::MaxOfLanes(d, most);
  auto sum = hn::Zero(d);
  each_vector(d, begin, end, [&](At at) HWY_ATTR {
    const auto v = mask_tail(d, load(d, x, at), at, -kInfinity);
    sum = hn::Add(sum, exp_of(d, hn::Sub(v, most)));
  });
  return {hn::GetLane(most), sum_lanes(d, sum), numbers};
}

template <class C>
Largest largest_of(const C* x, int64_t n) {
  std::vector<Stretch<C>> stretches(static_cast<size_t>((n + kStretch - 1) / kStretch));
  parallel_ranges(std::ssize(stretches), kElementGrain / kStretch, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      stretches[static_cast<size_t>(i)] =
          summarize(x, i * kStretch, std::min(n, (i + 1) * kStretch));
    }
  });
  size_t best = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (!stretches[i].numbers) {
      return {};
    }
    best = stretches[i].most > stretches[best].most ? i : best;
  }
  if (stretches.empty() || !std::isfinite(stretches[best].most)) {
    return {};
  }
  const C most = stretches[best].most;
  double sum = 0;
  for (const Stretch<C>& stretch : stretches) {
    sum += static_cast<double>(stretch.sum) * std::exp(static_cast<double>(stretch.most - most));
  }
  const C* first = x + static_cast<int64_t>(best) * kStretch;
  return {std::find(first, x + n, most) - x, most, most + std::log(sum)};
}

Largest FindLargest(const Tensor& x) {
  return x.dtype() == DType::f64 ? largest_of(x.data<double>(), x.numel())
                                 : largest_of(x.data<float>(), x.numel());
}

template <class C>
void exp_weights(const C* x, C shift, C divisor, C* y, int64_t n) {
  parallel_ranges(n, kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const hn::ScalableTag<C> d;
    const auto from = hn::Set(d, shift), by = hn::Set(d, divisor);
    each_vector(d, begin, end, [&](At at) HWY_ATTR {
      store(exp_of(d, hn::Div(hn::Sub(load(d, x, at), from), by)), d, y, at);
    });
  });
}

void ExpWeights(const Tensor& x, double shift, double divisor, Tensor& y) {
  const auto run = [&]<class C>(const C* from, C* to) {
    // Anything smaller than the smallest normal number sends all but the shift itself to 0 too.
    const C by = static_cast<C>(std::max<double>(divisor, std::numeric_limits<C>::min()));
    exp_weights(from, static_cast<C>(shift), by, to, x.numel());
  };
  if (x.dtype() == DType::f64) {
    run(x.data<double>(), y.data<double>());
  } else {
    run(x.data<float>(), y.data<float>());
  }
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(FindLargest);
HWY_EXPORT(ExpWeights);

namespace {

/// Tokens that may still be chosen.
template <class C>
class Candidates {
 public:
  Candidates(const C* logits, C* weights, int64_t count)
      : logits_(logits), weights_(weights), tokens_(static_cast<size_t>(count)) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
  }

  void keep_top_k(int64_t k) {
    std::nth_element(tokens_.begin(), tokens_.begin() + k - 1, tokens_.end(), likelier());
    drop_from(static_cast<size_t>(k));
  }

  void keep_top_p(double p) {
    const double wanted =
        p * std::accumulate(tokens_.begin(), tokens_.end(), 0.0,
                            [this](double sum, int64_t token) { return sum + weights_[token]; });
    std::sort(tokens_.begin(), tokens_.end(), likelier());
    double sum = 0;
    size_t kept = 0;
    do {
      sum += weights_[tokens_[kept++]];
    } while (sum < wanted && kept < tokens_.size());
    drop_from(kept);
  }

 private:
  auto likelier() const {
    return [this](int64_t a, int64_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    };
  }
  void drop_from(size_t first) {
    for (size_t i = first; i < tokens_.size(); ++i) {
      weights_[tokens_[i]] = 0;
    }
    tokens_.resize(first);
  }

  const C* logits_;
  C* weights_;
  std::vector<int64_t> tokens_;
};

template <class C>
void narrow(const C* logits, const Narrowing& by, C* weights, int64_t count) {
  const bool top_k = by.top_k > 0 && by.top_k < count;
  if (top_k || by.top_p < 1) {
    Candidates<C> left(logits, weights, count);
    if (top_k) {
      left.keep_top_k(by.top_k);
    }
    if (by.top_p < 1) {
      left.keep_top_p(by.top_p);
    }
  }
  std::replace_if(
      weights, weights + count, [&by](C weight) { return weight < by.min_p; }, C(0));
}

template <class C>
int32_t draw_from(const C* weights, int64_t count, double share) {
  double left = share * std::accumulate(weights, weights + count, 0.0);
  for (int64_t i = 0; i < count; ++i) {
    left -= weights[i];
    if (left < 0) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

}  // namespace

Largest CpuBackend::largest(const Tensor& x) { return HWY_DYNAMIC_DISPATCH(FindLargest)(x); }
void CpuBackend::exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) {
  HWY_DYNAMIC_DISPATCH(ExpWeights)(x, shift, divisor, y);
}
void CpuBackend::keep_likeliest(const Tensor& x, const Narrowing& by, Tensor& w) {
  for_type(x.dtype(), [&]<class, class C>() { narrow(x.data<C>(), by, w.data<C>(), x.numel()); });
}
int32_t CpuBackend::draw(const Tensor& w, double share) {
  int32_t token = -1;
  for_type(w.dtype(), [&]<class, class C>() { token = draw_from(w.data<C>(), w.numel(), share); });
  return token;
}

}  // namespace headroom::kernels::cpu
#endif
