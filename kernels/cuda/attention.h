// Attention on a GPU: the parts that CudaBackend calls.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Backend::attention and Backend::attention_backward.
void attention(const AttentionInputs& in, Tensor& out, Tensor& lse);
void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                        const Into& dsink);

/// Whether attention_decode() is for this call: few queries, and vectors that fit its registers.
bool decodes(const AttentionInputs& in);
void attention_decode(const AttentionInputs& in, Tensor& out, Tensor& lse);

}  // namespace headroom::kernels::cuda
