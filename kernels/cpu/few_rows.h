// Products with so few rows that the time is that of reading the weights: decoding's.
#pragma once

#include "tensor/tensor.h"

namespace headroom::kernels::cpu {

/// Up to this many rows few_rows() beats a blocked product, which repacks the weights first.
inline constexpr int64_t kFewRows = 8;

/// out (M, N) = x (M, K) times the transpose of w (N, K), for M <= kFewRows; f32 or bf16 operands,
/// sums in f32.
void few_rows(const Tensor& x, const Tensor& w, Tensor& out);

}  // namespace headroom::kernels::cpu
