// The machine's ceilings as a benchmark takes them: sampled between the runs that are compared with
// them, so that both see the same clock.
#pragma once

#include <vector>

#include "nn/gpt.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace headroom::experiments {

/// The middle one, or the mean of the middle two. Throws Error when there are none.
double median(std::vector<double> values);

/// GFLOP/s of the library's matrix product at the best of a few large shapes, those left out that
/// would take seconds; operands are f32 or bf16, results f32. On the CPU below
/// kernels::fma_peak_gflops(), or below amx_peak_gflops() where that isn't 0.
double best_gemm_gflops(DType operands, Device device);

/// The ceiling of arithmetic in GFLOP/s: on the CPU kernels::fma_peak_gflops(); on a GPU, where no
/// kernel measures that, best_gemm_gflops().
double peak_gflops(DType operands, Device device);

/// The median of a few kernels::amx_peak_gflops(), the higher ceiling of oneDNN's products of bf16
/// on processors that have it; 0 elsewhere and on a GPU.
double amx_peak_gflops(DType operands, Device device);

/// The ceiling of reading memory in GB/s: on the CPU kernels::read_bandwidth_gb_s(); on a GPU what
/// its copies read and write.
double bandwidth_gb_s(Device device);

/// What a pass of one sequence reads that leaves `context` tokens in the cache: the weights and the
/// cache, in what a pass with these activations holds them in.
int64_t bytes_of_a_pass(const nn::GPT& model, int64_t context, DType activations);

/// Bytes of memory held at most: by this process (VmHWM), or of a GPU by its allocator.
int64_t peak_bytes(Device device);
/// What JSON calls them.
const char* peak_bytes_name(Device device);

}  // namespace headroom::experiments
