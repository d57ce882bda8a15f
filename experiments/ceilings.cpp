// Medians, the best matrix product, and the most memory held.
#include "experiments/ceilings.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <span>

#include "configs/size.h"
#include "experiments/milliseconds.h"
#include "kernels/backend.h"
#include "kernels/peak.h"
#include "tensor/allocator.h"
#include "tensor/rng.h"

namespace headroom::experiments {

double median(std::vector<double> values) {
  check(!values.empty(), "[bench] a median of no values");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

namespace {

/// From -1 to 1: zeros would cost a GPU less power, and its clock would be higher for them.
Tensor random_matrix(int64_t size, DType type, Device device) {
  const RandomStream stream(1, "matrix product");
  std::vector<float> values(static_cast<size_t>(size * size));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(2 * stream.uniform(i) - 1);
  }
  const Tensor numbers = Tensor::from(values, {size, size}, device);
  Tensor matrix = Tensor::empty({size, size}, type, device);
  kernels::backend(device).cast(numbers, matrix);
  return matrix;
}

/// The shortest of a few times of `work`, after one that warms up.
template <class F>
double best_milliseconds(const F& work) {
  constexpr int kRuns = 5;
  work();
  double best = milliseconds(work);
  for (int run = 1; run < kRuns; ++run) {
    best = std::min(best, milliseconds(work));
  }
  return best;
}

}  // namespace

double best_gemm_gflops(DType operands, Device device) {
  using kernels::Transpose;
  constexpr std::array<int64_t, 3> kOnCpu = {1024, 2048, 3072};
  constexpr std::array<int64_t, 4> kOnGpu = {256, 2048, 4096, 8192};
  constexpr double kLongest = 1000;  // milliseconds of a product
  const std::span<const int64_t> sizes = device == kCpu ? std::span<const int64_t>(kOnCpu) : kOnGpu;
  auto& kernels = kernels::backend(device);
  double best = 0;
  for (const int64_t size : sizes) {
    const auto n = static_cast<double>(size);
    const double gigaflop = 2 * n * n * n / 1e9;
    if (best > 0 && gigaflop / best > kLongest / 1e3) {
      break;
    }
    const Tensor a = random_matrix(size, operands, device), b = a.clone();
    const kernels::Into out{Tensor::empty({size, size}, DType::f32, device)};
    const double ms = best_milliseconds([&] {
      kernels.matmul(a, Transpose::no, b, Transpose::yes, out);
      kernels.wait();
    });
    best = std::max(best, gigaflop / ms * 1e3);
  }
  return best;
}

double peak_gflops(DType operands, Device device) {
  return device == kCpu ? kernels::fma_peak_gflops(operands) : best_gemm_gflops(operands, device);
}

double amx_peak_gflops(DType operands, Device device) {
  constexpr int kRuns = 3;
  std::vector<double> runs;
  while (device == kCpu && std::ssize(runs) < kRuns) {
    runs.push_back(kernels::amx_peak_gflops(operands));
  }
  return runs.empty() ? 0 : median(runs);
}

double bandwidth_gb_s(Device device) {
  if (device == kCpu) {
    return kernels::read_bandwidth_gb_s();
  }
  constexpr int64_t kBytes = int64_t{1} << 30;  // far more than a GPU's caches hold
  const Tensor from = Tensor::zeros({kBytes}, DType::i8, device);
  Tensor to = Tensor::empty({kBytes}, DType::i8, device);
  auto& kernels = kernels::backend(device);
  const double ms = best_milliseconds([&] {
    to.copy_from(from);
    kernels.wait();
  });
  return 2 * static_cast<double>(kBytes) / ms / 1e6;
}

int64_t bytes_of_a_pass(const nn::GPT& model, int64_t context, DType activations) {
  return model.weight_bytes(activations) +
         configs::cache_bytes(model.config(), context, 1, configs::kv_types_of(activations));
}

int64_t peak_bytes(Device device) {
  if (device != kCpu) {
    return static_cast<int64_t>(allocator(device).peak_bytes());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux counts in KiB
}

const char* peak_bytes_name(Device device) {
  return device == kCpu ? "peak_rss_bytes" : "peak_device_bytes";
}

}  // namespace headroom::experiments
