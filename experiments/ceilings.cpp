// Medians, the best matrix product, and the most memory held.
#include "experiments/ceilings.h"

#include <sys/resource.h>

#include <algorithm>

#include "experiments/milliseconds.h"
#include "kernels/backend.h"

namespace headroom::experiments {

double median(std::vector<double> values) {
  check(!values.empty(), "[bench] a median of no values");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double best_gemm_gflops(DType operands) {
  using kernels::Transpose;
  constexpr int kRuns = 5;
  double best = 0;
  for (const int64_t size : {1024, 2048, 3072}) {
    const Tensor a = Tensor::zeros({size, size}, operands),
                 b = Tensor::zeros({size, size}, operands);
    const kernels::Into out{Tensor::empty({size, size}, DType::f32)};
    auto& device = kernels::backend(kCpu);
    device.matmul(a, Transpose::no, b, Transpose::yes, out);  // makes the primitive
    for (int run = 0; run < kRuns; ++run) {
      const double ms =
          milliseconds([&] { device.matmul(a, Transpose::no, b, Transpose::yes, out); });
      const auto n = static_cast<double>(size);
      best = std::max(best, 2 * n * n * n / ms / 1e6);
    }
  }
  return best;
}

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux counts in KiB
}

}  // namespace headroom::experiments
