// What choosing a token asks of its logits, on a GPU: what CudaBackend's functions of these names
// do.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Waits for the device.
Largest largest(const Tensor& x);
void exp_weights(const Tensor& x, double shift, double divisor, Tensor& y);

}  // namespace headroom::kernels::cuda
