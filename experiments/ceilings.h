// The machine's ceilings as a benchmark takes them: sampled between the runs that are compared with
// them, so that both see the same clock.
#pragma once

#include <vector>

#include "tensor/dtype.h"

namespace headroom::experiments {

/// The middle one, or the mean of the middle two. Throws Error when there are none.
double median(std::vector<double> values);

/// GFLOP/s of the library's matrix product at the best of a few large shapes; operands are f32 or
/// bf16, results f32. Below kernels::fma_peak_gflops() on any machine.
double best_gemm_gflops(DType operands);

/// Bytes of memory this process has held at most (VmHWM).
int64_t peak_resident_bytes();

}  // namespace headroom::experiments
