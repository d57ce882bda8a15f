// Numbers that change places, and what is added to each row alike. Neighbouring threads write
// neighbouring numbers.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

template <class S, class C>
__global__ void copy_column_range(const S* x, int64_t x_width, S* y, int64_t y_width, bool add,
                                  int64_t width, int64_t count) {
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const int64_t row = i / width, column = i % width;
    put(widen<C>(x[row * x_width + column]), y + row * y_width + column, add);
  }
}

/// y (B, A, width) from x (A, B, width).
template <class S, class C>
__global__ void swap_first_axes(const S* x, S* y, bool add, int64_t A, int64_t B, int64_t width) {
  for (int64_t i = first_item(); i < A * B * width; i += item_step()) {
    const int64_t b = i / (A * width), a = i / width % A;
    put(widen<C>(x[(a * B + b) * width + i % width]), y + i, add);
  }
}

}  // namespace

void CudaBackend::copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                               int64_t width) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const int64_t count = x.dim(0) * width;
    launch(copy_column_range<S, C>, blocks_for(count), kThreads, 0, x.data<S>() + x_column,
           x.dim(-1), y.data<S>() + y_column, y.tensor.dim(-1), y.add, width, count);
  });
}

void CudaBackend::swap_axes(const Tensor& x, const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    launch(swap_first_axes<S, C>, blocks_for(x.numel()), kThreads, 0, x.data<S>(), y.data<S>(),
           y.add, x.dim(0), x.dim(1), x.dim(2));
  });
}

}  // namespace headroom::kernels::cuda
