// Log-sum-exps change between our order and cuDNN's.
#pragma once

#include "tensor/tensor.h"

namespace headroom::kernels::cuda {

/// y (B, N, M) = x (B, M, N), both f32.
void swap_last_axes(const Tensor& x, Tensor& y);

}  // namespace headroom::kernels::cuda
