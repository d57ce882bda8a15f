// Grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245). n_kv_head = n_head is multi-head
// attention (Vaswani et al. 2017) and n_kv_head = 1 multi-query attention (Shazeer 2019, arXiv
// 1911.02150): one path for all three.
#pragma once

#include <memory>
#include <vector>

#include "nn/attend.h"
#include "nn/layers.h"
#include "nn/positions.h"

namespace headroom::nn {

class Attention : public Module {
 public:
  Attention(const Scope& scope, const configs::ModelConfig& model, int64_t layer);
  /// x (B, T, C) to (B, T, C).
  Variable forward(const Variable& x, const Pass& pass, const Positions& positions) const;

  /// The layers that multiply with matrices.
  std::vector<Linear*> linears() { return {&q_proj_, &k_proj_, &v_proj_, &o_proj_}; }

 private:
  const configs::ModelConfig& model_;
  int64_t layer_;
  Variable sinks_;  // (H), with learned sinks
  Linear q_proj_, k_proj_, v_proj_;
  std::unique_ptr<Norm> q_norm_, k_norm_;  // with qk_norm
  Linear o_proj_;
};

}  // namespace headroom::nn
