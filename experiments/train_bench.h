// How fast a training step runs, beside what the machine could do: `headroom bench train`.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "configs/config.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace headroom::experiments {

struct TrainBenchOptions {
  DType dtype = DType::f32;  // of activations: f32 or bf16
  int64_t vocab_size = 0;
  int64_t steps = 10;    // timed; two more go before them
  bool scaling = true;   // also with fewer threads; on a GPU there is nothing to compare
  Device device = kCpu;  // as train::choose_device gave it
};

/// A step's parts in milliseconds, medians of a few repetitions apart from the timed steps.
struct StepParts {
  double forward = 0, backward = 0, clip = 0, optimizer = 0;
  double muon_extra = 0;  // what Muon takes longer than AdamW; 0 unless the config asks for Muon
};

struct ThreadScaling {
  int threads = 0;
  double tokens_per_s = 0;
  double peak_gflops = 0;
  double fraction_of_peak = 0;
};

struct TrainBench {
  int threads = 0;
  int64_t tokens = 0;         // of a step
  double step_ms = 0;         // median
  double tokens_per_s = 0;    // at that
  double gflop_per_step = 0;  // configs::step_flop
  double gflops = 0;
  double peak_gflops = 0;  // experiments::peak_gflops: median of five, between the timed steps
  double gemm_gflops = 0;
  double amx_peak_gflops = 0;  // kernels::amx_peak_gflops: 0 where there is none
  double fraction_of_peak = 0;
  StepParts parts;
  int64_t peak_bytes = 0;              // experiments::peak_bytes
  int64_t planned_bytes = 0;           // configs::training_memory
  std::vector<ThreadScaling> scaling;  // 1, 2, 4, ... and all; empty unless asked for
};

/// Called before each step: how many are done, of how many.
using BenchProgress = std::function<void(int64_t done, int64_t all)>;

/// Times forward, backward, clipping and AdamW (whatever the config's optimizer) on one batch of
/// random tokens. Accumulation is left out: it spreads the optimizer's time over more tokens, and
/// its steps may take minutes. Leaves the number of threads as it was.
TrainBench bench_train(const configs::Config& config, const TrainBenchOptions& options,
                       const BenchProgress& progress);

}  // namespace headroom::experiments
