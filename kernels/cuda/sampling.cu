// What choosing a token asks of its logits: a block summarises a stretch of them, the host joins
// the few summaries in order.
#include "kernels/cuda/cuda_backend.h"

#include <cmath>
#include <limits>

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

constexpr int64_t kStretch = 4096;

/// Of a stretch: its largest element, that one's index, and the sum of exp(element - largest).
/// The index is -1 where some element is NaN or +inf.
struct Summary {
  double most, index, sum;
};

template <class C>
__global__ void summarize(const C* x, Summary* summaries, int64_t n, C infinity) {
  constexpr int kWarps = kThreads / kWarp;
  const auto scratch = shared_memory<C>(0, kWarps);
  const auto whole = shared_memory<int>(kWarps * static_cast<int>(sizeof(C)), kWarps);
  const int64_t begin = blockIdx.x * kStretch;
  const int64_t end = begin + kStretch < n ? begin + kStretch : n;
  C most = -infinity;
  int bad = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    bad = x[i] < infinity ? bad : 1;
    most = Maximum()(most, x[i]);
  }
  bad = join_block(bad, whole, Maximum());
  most = join_block(most, scratch, Maximum());
  // The lowest index is the largest count of elements from it to the end.
  int from_end = 0;
  C sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    from_end = x[i] == most && from_end == 0 ? static_cast<int>(end - i) : from_end;
    sum += most > -infinity ? exponential(x[i] - most) : C(0);
  }
  from_end = join_block(from_end, whole, Maximum());
  sum = join_block(sum, scratch, Sum());
  if (threadIdx.x == 0) {
    summaries[blockIdx.x] = {static_cast<double>(most),
                             bad != 0 ? -1.0 : static_cast<double>(end - from_end),
                             static_cast<double>(sum)};
  }
}

Largest join(const Summary* summaries, int64_t count) {
  const Summary* best = summaries;
  for (const Summary* s = summaries; s < summaries + count; ++s) {
    if (s->index < 0) {
      return {};
    }
    best = s->most > best->most ? s : best;
  }
  if (!std::isfinite(best->most)) {
    return {};
  }
  double sum = 0;
  for (const Summary* s = summaries; s < summaries + count; ++s) {
    sum += s->sum * std::exp(s->most - best->most);
  }
  return {static_cast<int64_t>(best->index), best->most, best->most + std::log(sum)};
}

template <class C>
__global__ void weigh(const C* x, C shift, C divisor, C* y, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_step()) {
    y[i] = exponential((x[i] - shift) / divisor);
  }
}

}  // namespace

Largest CudaBackend::largest(const Tensor& x) {
  const int64_t n = x.numel(), stretches = (n + kStretch - 1) / kStretch;
  if (n == 0) {
    return {};
  }
  Tensor summaries = Tensor::empty({stretches, 3}, DType::f64, x.device());
  for_type(x.dtype(), [&]<class, class C>() {
    launch(summarize<C>, dim3(static_cast<unsigned>(stretches)), kThreads,
           kThreads / kWarp * (sizeof(C) + sizeof(int)), x.data<C>(),
           reinterpret_cast<Summary*>(summaries.data<double>()), n,
           std::numeric_limits<C>::infinity());
  });
  const Tensor on_host = summaries.to(kCpu);
  return join(reinterpret_cast<const Summary*>(on_host.data<double>()), stretches);
}

void CudaBackend::exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) {
  for_type(x.dtype(), [&]<class, class C>() {
    // Anything smaller than the smallest normal number sends all but the shift itself to 0 too.
    const C by = static_cast<C>(std::max<double>(divisor, std::numeric_limits<C>::min()));
    launch(weigh<C>, blocks_for(x.numel()), kThreads, 0, x.data<C>(), static_cast<C>(shift), by,
           y.data<C>(), x.numel());
  });
}

}  // namespace headroom::kernels::cuda
