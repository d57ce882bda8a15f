// A loop of independent multiply-adds that touches no memory.
#include "bench/fma_peak.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headroom::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Enough sums in flight to hide the latency of 4 cycles on two units.
constexpr int kSums = 12;

/// Runs `steps` steps and returns their FLOP; `sink` keeps the compiler from dropping them.
HWY_NOINLINE double MultiplyAdd(int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sum[kSums];
  for (int i = 0; i < kSums; ++i) {
    sum[i] = hn::Set(d, static_cast<float>(i));
  }
  const auto a = hn::Set(d, 0.999F), b = hn::Set(d, 0.001F);
  for (int64_t step = 0; step < steps; ++step) {
    for (int i = 0; i < kSums; ++i) {
      sum[i] = hn::MulAdd(sum[i], a, b);
    }
  }
  for (int i = 1; i < kSums; ++i) {
    sum[0] = hn::Add(sum[0], sum[i]);
  }
  *sink = hn::GetLane(sum[0]);
  return 2.0 * kSums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

}  // namespace headroom::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::bench {

HWY_EXPORT(MultiplyAdd);

double fma_peak_gflops() {
  constexpr int kRuns = 5;
  constexpr int64_t kSteps = 4'000'000;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    double flop = 0;
    const auto begin = std::chrono::steady_clock::now();
#pragma omp parallel reduction(+ : flop)
    {
      volatile float kept = 0;
      float sink = 0;
      flop += HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kSteps, &sink);
      kept = sink;
      static_cast<void>(kept);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, flop / seconds.count() / 1e9);
  }
  return best;
}

}  // namespace headroom::bench
#endif
