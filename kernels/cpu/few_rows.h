// Products with so few rows that the time is that of reading the weights: decoding's.
#pragma once

#include <span>

#include "kernels/backend.h"

namespace headroom::kernels::cpu {

/// Up to this many rows few_rows() beats a blocked product, which repacks the weights first.
inline constexpr int64_t kFewRows = 8;

/// Backend::linear for x in f32 or bf16, at its best for M <= kFewRows. A row's result is the same
/// whatever other rows there are.
void few_rows(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y);

}  // namespace headroom::kernels::cpu
