// Matrix products on a GPU, by cuBLASLt.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Backend::matmul. Sums of f32 are of whole f32 numbers (no TF32).
void matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb, const Into& out);

/// Backend::linear: cuBLASLt's where there are rows enough and one type, few_rows() otherwise.
void linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y);

}  // namespace headroom::kernels::cuda
