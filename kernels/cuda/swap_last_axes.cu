// A transposition per sequence. There is one number for a head's query, of which its row has
// dozens.
#include "kernels/cuda/swap_last_axes.h"

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

__global__ void swap_each(const float* x, float* y, int64_t M, int64_t N, int64_t count) {
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const int64_t b = i / (M * N), n = i / M % N, m = i % M;
    y[i] = x[(b * M + m) * N + n];
  }
}

}  // namespace

void swap_last_axes(const Tensor& x, Tensor& y) {
  launch(swap_each, blocks_for(x.numel()), kThreads, 0, x.data<float>(), y.data<float>(), x.dim(1),
         x.dim(2), x.numel());
}

}  // namespace headroom::kernels::cuda
