// Products with so few rows that the time is that of reading the weights, on a GPU: decoding's.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Up to this many rows few_rows() reads each weight once.
inline constexpr int64_t kFewRows = 8;

/// Backend::linear for x in f32 or bf16, at its best for N <= kFewRows; right for any N, and where
/// types differ (i8 weights) without a copy of them. A row's result is the same whatever other rows
/// there are.
void few_rows(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y);

}  // namespace headroom::kernels::cuda
