// The arithmetic of optimizers on a GPU: what CudaBackend's functions of these names do.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Waits for the device.
double sum_of_squares(std::span<const Tensor> tensors);
void adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step);

}  // namespace headroom::kernels::cuda
