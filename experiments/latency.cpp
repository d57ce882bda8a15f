// Steps at several contexts, and the lines through them.
#include "experiments/latency.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "experiments/ceilings.h"
#include "experiments/timed_model.h"

namespace headroom::experiments {

namespace {

constexpr int kNaiveRuns = 3;
constexpr int kCachedRuns = 15;

double median_of(int runs, const std::function<double()>& run) {
  run();  // warms up
  std::vector<double> values(static_cast<size_t>(runs));
  std::generate(values.begin(), values.end(), run);
  return median(values);
}

/// Microseconds per token from milliseconds by context.
double slope(const std::vector<LatencyRow>& rows, double LatencyRow::*ms) {
  const auto n = static_cast<double>(rows.size());
  double x = 0, y = 0;
  for (const LatencyRow& row : rows) {
    x += static_cast<double>(row.context) / n;
    y += row.*ms / n;
  }
  double xx = 0, xy = 0;
  for (const LatencyRow& row : rows) {
    const double dx = static_cast<double>(row.context) - x;
    xx += dx * dx;
    xy += dx * (row.*ms - y);
  }
  return xx > 0 ? xy / xx * 1e3 : 0;
}

}  // namespace

Latency bench_latency(const nn::GPT& model, const std::vector<int64_t>& contexts, DType dtype,
                      const BenchProgress& progress) {
  // A naive step costs about as much as its context is long, a cached one next to nothing.
  const int64_t all = std::accumulate(contexts.begin(), contexts.end(), int64_t{0});
  int64_t done = 0;
  Latency result;
  for (const int64_t context : contexts) {
    progress(done, all);
    TimedDecode decode(model, 1, context + 1, dtype);
    decode.fill(context);
    LatencyRow row{.context = context};
    row.cached_ms = median_of(kCachedRuns, [&] { return decode.step_ms(); });
    const auto bytes = static_cast<double>(bytes_of_a_pass(model, context + 1, dtype));
    row.fraction_of_bandwidth = bytes / row.cached_ms / 1e6 / bandwidth_gb_s(model.device());
    row.naive_ms = median_of(kNaiveRuns, [&] { return naive_step_ms(model, context + 1, dtype); });
    result.rows.push_back(row);
    done += context;
  }
  progress(done, all);
  result.naive_slope_us_per_token = slope(result.rows, &LatencyRow::naive_ms);
  result.cached_slope_us_per_token = slope(result.rows, &LatencyRow::cached_ms);
  return result;
}

}  // namespace headroom::experiments
