// Attention on a GPU for a few queries, and when it is for them.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Whether attention_decode() is for this call: few queries, and vectors that fit its registers.
bool decodes(const AttentionInputs& in);
void attention_decode(const AttentionInputs& in, Tensor& out, Tensor& lse);

}  // namespace headroom::kernels::cuda
