// The ceiling that the benchmarks' figures stand beside.
#pragma once

namespace headroom::bench {

/// Fused multiply-adds on f32 registers alone, in GFLOP/s over all OpenMP threads: the best of a
/// few short runs with the widest vectors the kernels are compiled for.
double fma_peak_gflops();

}  // namespace headroom::bench
