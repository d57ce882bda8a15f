// What this machine can do at most: the ceilings that measured figures stand beside. Each call is
// one short measurement (some hundredths of a second) on all threads of set_threads(); a benchmark
// takes the median of several, made between the runs that they are compared with.
#pragma once

#include "tensor/dtype.h"

namespace headroom::kernels {

/// GFLOP/s of multiply-adds on registers alone, with the widest vectors the kernels are compiled
/// for. bf16 stands for the dot-product instruction on pairs of bf16 with sums in f32, where the
/// processor has it; elsewhere bf16 is computed as f32 and has f32's ceiling.
double fma_peak_gflops(DType operands);

/// GFLOP/s of products of tiles on tile registers alone (AMX, which oneDNN's matrix products use
/// and the kernels of this project don't): of bf16 with sums in f32. 0 for f32, and where the
/// processor has no such unit or the system doesn't let this process use it.
double amx_peak_gflops(DType operands);

/// GB/s of reading memory that no cache holds, in order, each thread its own part.
double read_bandwidth_gb_s();

}  // namespace headroom::kernels
