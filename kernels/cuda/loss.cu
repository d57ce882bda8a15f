// Cross-entropy over rows of logits: a block to a row, which it reads for the maximum, the sum and
// the gradient; the second and third time mostly from the second cache.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

template <class S, class C>
__global__ void cross_entropy_rows(const C* logits, const int32_t* targets, C scale, C* losses,
                                   S* gradient, int64_t rows, int64_t width) {
  const auto scratch = shared_memory<C>(0, kThreads / kWarp);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const C* x = logits + row * width;
    S* dx = gradient == nullptr ? nullptr : gradient + row * width;
    const int32_t target = targets[row];
    C most = x[0];
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      most = Maximum()(most, x[i]);
    }
    most = join_block(most, scratch, Maximum());
    C sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      sum += exponential(x[i] - most);
    }
    // join_block's barriers also keep the gradient, which may be the logits, behind this read.
    const C hit = target < 0 ? C(0) : x[target];
    const C lse = most + logarithm(join_block(sum, scratch, Sum()));
    if (threadIdx.x == 0) {
      losses[row] = target < 0 ? C(0) : lse - hit;
    }
    for (int64_t i = threadIdx.x; dx != nullptr && i < width; i += kThreads) {
      const C probability = exponential(x[i] - lse) - (i == target ? C(1) : C(0));
      dx[i] = narrow<S>(target < 0 ? C(0) : scale * probability);
    }
  }
}

/// One block: a loss for each row of a batch is few numbers.
template <class C>
__global__ void sum_in_order(const C* x, double factor, C* total, int64_t n) {
  const auto scratch = shared_memory<double>(0, kThreads / kWarp);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    sum += static_cast<double>(x[i]);
  }
  sum = join_block(sum, scratch, Sum());
  if (threadIdx.x == 0) {
    *total = static_cast<C>(factor * sum);
  }
}

}  // namespace

void CudaBackend::cross_entropy(const Tensor& logits, const Tensor& targets, double scale,
                                Tensor& losses, Tensor& dlogits) {
  const DType type = dlogits.defined() ? dlogits.dtype() : logits.dtype();
  for_type(type, [&]<class S, class C>() {
    launch(cross_entropy_rows<S, C>, block_per_row(targets.numel()), kThreads,
           kThreads / kWarp * sizeof(C), logits.data<C>(), targets.data<int32_t>(),
           static_cast<C>(scale), losses.data<C>(), dlogits.defined() ? dlogits.data<S>() : nullptr,
           targets.numel(), logits.dim(-1));
  });
}

void CudaBackend::sum(const Tensor& x, double factor, Tensor& total) {
  for_type(x.dtype(), [&]<class, class C>() {
    launch(sum_in_order<C>, dim3(1), kThreads, kThreads / kWarp * sizeof(double), x.data<C>(),
           factor, total.data<C>(), x.numel());
  });
}

}  // namespace headroom::kernels::cuda
