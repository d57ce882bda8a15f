// Cross-entropy over rows of logits: a block to a row, which it reads for the maximum, the sum and
// the gradient; the second and third time mostly from the second cache.
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

namespace headroom::kernels::cuda {

namespace {

__device__ inline float power(float x) { return expf(x); }
__device__ inline double power(double x) { return exp(x); }
__device__ inline float logarithm_of(float x) { return logf(x); }
__device__ inline double logarithm_of(double x) { return log(x); }

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
      sum += power(x[i] - most);
    }
    // join_block's barriers also keep the gradient, which may be the logits, behind this read.
    const C hit = target < 0 ? C(0) : x[target];
    const C lse = most + logarithm_of(join_block(sum, scratch, Sum()));
    if (threadIdx.x == 0) {
      losses[row] = target < 0 ? C(0) : lse - hit;
    }
    for (int64_t i = threadIdx.x; dx != nullptr && i < width; i += kThreads) {
      const C probability = power(x[i] - lse) - (i == target ? C(1) : C(0));
      dx[i] = narrow<S>(target < 0 ? C(0) : scale * probability);
    }
  }
}

}  // namespace

void cross_entropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                   Tensor& dlogits) {
  const DType type = dlogits.defined() ? dlogits.dtype() : logits.dtype();
  for_type(type, [&]<class S, class C>() {
    launch(cross_entropy_rows<S, C>, block_per_row(targets.numel()), kThreads,
           kThreads / kWarp * sizeof(C), logits.data<C>(), targets.data<int32_t>(),
           static_cast<C>(scale), losses.data<C>(), dlogits.defined() ? dlogits.data<S>() : nullptr,
           targets.numel(), logits.dim(-1));
  });
}

}  // namespace headroom::kernels::cuda
