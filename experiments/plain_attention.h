// Attention written plainly out of matrix products and a softmax, every score in memory at once:
// what the tiled kernel is compared with. All tensors are f32, heads first.
#pragma once

#include "tensor/tensor.h"

namespace headroom::experiments {

/// x (S, H, D) as (H, S, D): a copy.
Tensor heads_first(const Tensor& x);

/// Scores (H, T, S) of q (H, T, D) and k (H, S, D), times `scale`.
Tensor plain_scores(const Tensor& q, const Tensor& k, double scale);

/// Query t of T sees the keys up to S - T + t: the scores of the others become -1e30.
void mask_causally(Tensor& scores);

/// softmax(scores) v: (H, T, D) from scores (H, T, S), which are overwritten, and v (H, S, D).
Tensor plain_weighted_sum(const Tensor& scores, const Tensor& v);

}  // namespace headroom::experiments
