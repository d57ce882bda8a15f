// Prefill and decode beside the machine's two ceilings, arithmetic and memory (the roofline model:
// Williams, Waterman and Patterson 2009): `headroom bench roofline`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/train_bench.h"
#include "nn/gpt.h"

namespace headroom::experiments {

struct RooflineOptions {
  Device device = kCpu;
  DType prefill_dtype = DType::f32;
  int64_t prefill_tokens = 2048;
  int64_t context = 512;           // of the decode steps
  int64_t steps = 32;              // decode steps of each kind
  std::vector<int64_t> batches;    // for the table of batches; none: no table
  std::vector<int64_t> n_kv_head;  // its columns
  int64_t batch_context = 2048;    // its context
};

struct PrefillPoint {
  int64_t tokens = 0;
  double tokens_per_s = 0;
  double gflops = 0;
  double fraction_of_peak = 0;
  double flop_per_byte = 0;  // of the weights read and the cache written
};

struct DecodePoint {
  std::string weights;             // "f32", "bf16", "int8"
  DType activations = DType::f32;  // and cache
  double tokens_per_s = 0;
  int64_t bytes_per_token = 0;  // weights and the cache of the context
  double fraction_of_bandwidth = 0;
  double flop_per_byte = 0;
};

/// Tokens/s of all sequences together.
struct BatchPoint {
  int64_t batch = 0, n_kv_head = 0;
  double tokens_per_s = 0;
};

struct Roofline {
  /// Of bandwidth_gb_s() and peak_gflops(): medians of samples between the steps.
  double read_bandwidth_gb_s = 0;
  double peak_fp32_gflops = 0, peak_bf16_gflops = 0;
  double amx_peak_gflops = 0;  // of bf16; 0 where there is none
  PrefillPoint prefill;
  std::vector<DecodePoint> decode;
  std::vector<BatchPoint> batches;
};

/// Times an untrained model of `config`.
Roofline bench_roofline(const configs::ModelConfig& config, int64_t vocab_size,
                        const RooflineOptions& options, const BenchProgress& progress);

}  // namespace headroom::experiments
