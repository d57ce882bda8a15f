// Which calls are for cuDNN: what its graph API documents (cudnn-frontend, docs/operations/
// Attention.md, "Support Matrix", and node/scaled_dot_product_flash_attention.h).
#include <cstdint>

#include "kernels/cuda/cudnn_attention.h"

namespace headroom::kernels::cuda {

namespace {

/// Its kernels load 16 bytes at a time and don't check addresses (node/sdpa_support_surface.h).
bool is_aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0; }

/// Heads of `size` numbers, in bf16, as they are.
bool is_plain(const Tensor& x, const KVCode& code, int64_t size) {
  return x.defined() && x.dtype() == DType::bf16 && !code.scales.defined() && x.dim(2) == size &&
         is_aligned(x);
}

}  // namespace

bool cudnn_takes(const AttentionInputs& in) {
  constexpr int64_t kMostSize = 128;  // of the backward pass on most GPUs
  const KVView& kv = in.kv;
  const int64_t size = in.q.dim(3);
  return in.q.dtype() == DType::bf16 && is_aligned(in.q) && is_plain(kv.k, kv.k_code, size) &&
         is_plain(kv.v, kv.v_code, size) && size % 8 == 0 && size <= kMostSize &&
         kv.dense.length > 0 && in.q.dim(1) % KVView::kBlock == 0 &&
         kv.dense.length % KVView::kBlock == 0 && !in.q_sink.defined() &&
         !in.sink_logits.defined() && (in.mask.window == 0 || in.mask.sinks == 0);
}

bool cudnn_backward_repeats(int major, size_t version) {
  // Ampere to Hopper have it since frontend 1.5. On the first Blackwells TransformerEngine trusts
  // it from 9.18.1 (its pull request 2584), on the later ones not at all (2798).
  return major == 8 || major == 9 || (major == 10 && version >= 91801);
}

}  // namespace headroom::kernels::cuda
