// Why the cache pays: the next token without it and with it, by context: `headroom bench latency`.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/train_bench.h"
#include "nn/gpt.h"

namespace headroom::experiments {

struct LatencyRow {
  int64_t context = 0;
  double naive_ms = 0;               // the whole sequence again
  double cached_ms = 0;              // one token through the cache
  double fraction_of_bandwidth = 0;  // that token's: bytes_of_a_pass(), beside bandwidth_gb_s()
};

struct Latency {
  std::vector<LatencyRow> rows;
  /// Slopes of the straight lines nearest to the rows (least squares), in microseconds per token of
  /// context; 0 for a single row.
  double naive_slope_us_per_token = 0, cached_slope_us_per_token = 0;
};

/// Times an untrained model at each context, in `dtype`, with what weights it holds.
Latency bench_latency(const nn::GPT& model, const std::vector<int64_t>& contexts, DType dtype,
                      const BenchProgress& progress);

}  // namespace headroom::experiments
