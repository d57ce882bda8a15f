// Kernels over the rows of a matrix on a GPU: what CudaBackend's functions of these names do.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

void copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                  int64_t width);
void swap_axes(const Tensor& x, const Into& y);
void add_bias(Tensor& x, const Tensor& bias);
void rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
          const Into& y);
void cross_entropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                   Tensor& dlogits);

}  // namespace headroom::kernels::cuda
