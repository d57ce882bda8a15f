// Attention on the CPU in tiles with an online softmax: no matrix of scores is ever stored
// (FlashAttention, arXiv 2205.14135; long contexts with few queries are split over the keys as in
// FlashDecoding). Semantics and shapes: Backend::attention in kernels/backend.h.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cpu {

/// No result depends on the number of threads: every output row has one owner, and splits follow
/// from shapes.
void attention(const AttentionInputs& in, Tensor& out, Tensor& lse);

/// The same for one query per sequence.
void attention_decode(const AttentionInputs& in, Tensor& out, Tensor& lse);

/// No two sequences may share slots here: each (sequence, KV head) owns its rows of dk and dv.
/// Slots that hold no position of any sequence get 0 (or keep what they have, with `add`).
void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                        const Into& dsink);

}  // namespace headroom::kernels::cpu
