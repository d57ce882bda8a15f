// The step that every kind of attention shares: keys and values to the cache, then attention over
// what is there.
#pragma once

#include "autograd/ops.h"
#include "nn/pass.h"

namespace headroom::nn {

/// Attention of q (B, T, H, Dk) in layer `layer` over k (B, T, K, Dk) and v (B, T, K, Dv), and over
/// what the pass's cache holds, to which they are added: (B, T, H, Dv).
autograd::Variable attend(const autograd::Variable& q, const autograd::Variable& k,
                          const autograd::Variable& v, int64_t layer, const Pass& pass,
                          autograd::AttentionOptions options);

}  // namespace headroom::nn
