// Sums over the rows of a matrix, column by column, in an order that depends only on its size:
// neighbouring threads own neighbouring columns and add a stretch of rows each; then the stretches
// are added in order.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

template <class C, class F>
__global__ void sum_stretches(F value, C* sums, int64_t rows, int64_t width, int64_t stretch) {
  const int64_t column = first_item();
  const int64_t begin = blockIdx.y * stretch;
  const int64_t end = begin + stretch < rows ? begin + stretch : rows;
  if (column >= width) {
    return;
  }
  C sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    sum += value(row, column);
  }
  sums[blockIdx.y * width + column] = sum;
}

template <class C>
__global__ void join_stretches(const C* sums, C* out, bool add, int64_t stretches, int64_t width) {
  const int64_t column = first_item();
  if (column >= width) {
    return;
  }
  C sum = 0;
  for (int64_t i = 0; i < stretches; ++i) {
    sum += sums[i * width + column];
  }
  put(sum, out + column, add);
}

/// out (width) (+)= the sum over rows of value(row, column).
template <class C, class F>
void sum_columns(const F& value, int64_t rows, int64_t width, const Into& out) {
  constexpr int64_t kLeastRows = 64, kMostStretches = 1024;
  const int64_t stretch = std::max(kLeastRows, (rows + kMostStretches - 1) / kMostStretches);
  const int64_t stretches = (rows + stretch - 1) / stretch;
  const auto across = static_cast<unsigned>((width + kThreads - 1) / kThreads);
  Tensor sums = Tensor::empty({stretches, width}, out.tensor.dtype(), out.tensor.device());
  launch(sum_stretches<C, F>, dim3(across, static_cast<unsigned>(stretches)), kThreads, 0, value,
         sums.data<C>(), rows, width, stretch);
  launch(join_stretches<C>, dim3(across), kThreads, 0, sums.data<C>(), out.data<C>(), out.add,
         stretches, width);
}

}  // namespace headroom::kernels::cuda
