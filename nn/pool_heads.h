// Fewer KV heads out of many: each new one is the mean of those it replaces (Ainslie et al. 2023,
// arXiv 2305.13245, section 2.1).
#pragma once

#include "nn/gpt.h"

namespace headroom::nn {

/// Fills `to`, a model like `from` but for a smaller n_kv_head that divides from's: KV head g of
/// `to` gets the mean of the rows of k_proj and v_proj, and of their biases, of the heads of `from`
/// that its query heads read. Everything else is copied. Not for mla, which has no KV heads.
void pool_kv_heads(const GPT& from, GPT& to);

}  // namespace headroom::nn
