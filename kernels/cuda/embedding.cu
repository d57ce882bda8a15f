// Rows of a table by index, and the scatter-add that is its gradient.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

template <class S, class C>
__global__ void look_up(const int32_t* ids, const C* w, S* y, int64_t width, int64_t count) {
  for (int64_t i = first_item(); i < count; i += item_step()) {
    y[i] = narrow<S>(w[ids[i / width] * width + i % width]);
  }
}

/// Which of ids [first, first + 32) up to `end` are `id`: a bit each, the same in all lanes.
__device__ inline unsigned matches(const int32_t* ids, int64_t first, int64_t end, int32_t id) {
  const int64_t at = first + threadIdx.x % kWarp;
  return __ballot_sync(kWholeWarp, at < end && ids[at] == id ? 1 : 0);
}

/// The block at an index's first occurrence owns its row of dw and adds all occurrences in order;
/// the other blocks find an earlier one and leave. Each warp looks through the indices itself, 32
/// at a time, so no barrier is needed.
template <class S, class C>
__global__ void add_occurrences(const int32_t* ids, const S* dy, C* dw, int64_t count,
                                int64_t width) {
  for (int64_t own = blockIdx.x; own < count; own += gridDim.x) {
    const int32_t id = ids[own];
    bool first = true;
    for (int64_t i = 0; first && i < own; i += kWarp) {
      first = matches(ids, i, own, id) == 0;
    }
    for (int64_t base = 0; first && base < width; base += kThreads) {
      const int64_t column = base + threadIdx.x;
      C sum = 0;
      for (int64_t i = own; i < count; i += kWarp) {
        for (unsigned left = matches(ids, i, count, id); left != 0; left &= left - 1) {
          const int64_t row = i + __ffs(static_cast<int>(left)) - 1;
          sum += column < width ? widen<C>(dy[row * width + column]) : C(0);
        }
      }
      if (column < width) {
        dw[id * width + column] += sum;
      }
    }
  }
}

}  // namespace

void CudaBackend::embedding(const Tensor& ids, const Tensor& w, Tensor& y) {
  for_type(y.dtype(), [&]<class S, class C>() {
    launch(look_up<S, C>, blocks_for(y.numel()), kThreads, 0, ids.data<int32_t>(), w.data<C>(),
           y.data<S>(), w.dim(1), y.numel());
  });
}

void CudaBackend::embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw) {
  for_type(dy.dtype(), [&]<class S, class C>() {
    if (!dw.add) {
      Tensor(dw.tensor).zero();
    }
    launch(add_occurrences<S, C>, block_per_row(ids.numel()), kThreads, 0, ids.data<int32_t>(),
           dy.data<S>(), dw.data<C>(), ids.numel(), dw.tensor.dim(1));
  });
}

}  // namespace headroom::kernels::cuda
