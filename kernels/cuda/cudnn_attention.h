// Attention by cuDNN's fused kernels, where they take a call: training, and long pieces of a
// prompt. What they refuse, and all of it in a build without cuDNN (cudnn_absent.cpp), our own
// kernels do.
#pragma once

#include <string>

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Whether a call is one for cuDNN: bf16, keys and values dense (KVView::dense) and not coded,
/// heads of one size for both, a multiple of 8 up to 128, the causal mask with or without a window;
/// no sinks of either kind; queries and keys in multiples of KVView::kBlock. Each length needs a
/// plan of its own, so that others would fill memory with plans that are used once.
bool cudnn_takes(const AttentionInputs& in);

/// Whether cuDNN `version` (10000 major + 100 minor + patch) has a backward pass for GPUs of
/// compute capability `major`.x that gives equal bits for equal inputs.
bool cudnn_backward_repeats(int major, size_t version);

/// Backend::attention and Backend::attention_backward for a call that cudnn_takes(). False, and
/// nothing is written, where cuDNN has no plan for it after all. `repeatable`: equal inputs give
/// equal bits.
bool cudnn_attention(const AttentionInputs& in, Tensor& out, Tensor& lse);
bool cudnn_attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                              const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                              bool repeatable);

/// ", cuDNN 9.19.0", or "" in a build without it.
std::string cudnn_version();

}  // namespace headroom::kernels::cuda
