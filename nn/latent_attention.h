// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). Keys and values of all
// heads are made from one latent per token, and only that is kept:
//
//   q[h] = (q_nope[h], rope(q_rope[h]))       of width Dn + Dr, Dn = head_dim
//   c = norm(latent)                          of width R = kv_rank
//   k[h] = (W_uk[h] c, rope(k_rope))          k_rope, of width Dr, is the same for every head
//   v[h] = W_uv[h] c
//
// No k[h] and v[h] are ever made. q_nope[h] . W_uk[h] c is (W_uk[h]^T q_nope[h]) . c, and the sum
// of weighted values is W_uv[h] times that of weighted c: every head attends with
//
//   (W_uk[h]^T q_nope[h], rope(q_rope[h]))    over the one key (c, rope(k_rope)) and value c
//
// and W_uv[h] takes what it gets (the absorbed form, section 2.1.2). Training, prefill and decoding
// all do, so a cache needs R + Dr numbers per token and layer. With learned positions Dr is 0.
#pragma once

#include <memory>
#include <vector>

#include "nn/attend.h"
#include "nn/layers.h"
#include "nn/positions.h"

namespace headroom::nn {

class LatentAttention : public Module {
 public:
  LatentAttention(const Scope& scope, const configs::ModelConfig& model, int64_t layer);
  /// x (B, T, C) to (B, T, C).
  Variable forward(const Variable& x, const Pass& pass, const Positions& positions) const;

  /// The layers that multiply with matrices, and those with a matrix per head.
  std::vector<Linear*> linears() { return {&q_proj_, &kv_a_proj_, &o_proj_}; }
  std::vector<const HeadLinear*> head_linears() const { return {&k_b_proj_, &v_b_proj_}; }

 private:
  const configs::ModelConfig& model_;
  int64_t layer_;
  Variable sinks_;  // (H), with learned sinks
  Linear q_proj_, kv_a_proj_;
  // With qk_norm: of each query, and of the one key that is not made from the latent, which has a
  // norm of its own.
  std::unique_ptr<Norm> q_norm_, k_norm_;
  Norm kv_a_norm_;
  HeadLinear k_b_proj_, v_b_proj_;
  Linear o_proj_;
};

}  // namespace headroom::nn
