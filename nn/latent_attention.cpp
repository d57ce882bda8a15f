// Project, absorb, attend over latents, project back.
#include "nn/latent_attention.h"

#include <cmath>

namespace headroom::nn {

using autograd::Transpose;

namespace {

std::unique_ptr<Norm> head_norm(const Scope& scope, int64_t width, double eps, bool wanted) {
  return wanted ? std::make_unique<Norm>(scope, width, configs::Norm::rmsnorm, false, eps)
                : nullptr;
}

/// {the first `width` columns, the rest}; the rest is absent where there is none.
std::pair<Variable, Variable> parts(const Variable& x, int64_t width) {
  return x.dim(-1) == width ? std::pair(x, Variable()) : autograd::split(x, width);
}

}  // namespace

LatentAttention::LatentAttention(const Scope& scope, const configs::ModelConfig& model,
                                 int64_t layer)
    : model_(model),
      layer_(layer),
      q_proj_(scope.in("q_proj"), model.n_embd,
              model.n_head * (model.head_dim() + model.rope_head_dim()), model.linear_bias(),
              kInitSd),
      kv_a_proj_(scope.in("kv_a_proj_with_mqa"), model.n_embd,
                 model.kv_rank() + model.rope_head_dim(), model.linear_bias(), kInitSd),
      q_norm_(head_norm(scope.in("q_norm"), model.head_dim() + model.rope_head_dim(),
                        model.norm_eps, model.qk_norm)),
      k_norm_(head_norm(scope.in("k_norm"), model.rope_head_dim(), model.norm_eps,
                        model.qk_norm && model.rope_head_dim() > 0)),
      kv_a_norm_(scope.in("kv_a_layernorm"), model.kv_rank(), configs::Norm::rmsnorm, false,
                 model.norm_eps),
      k_b_proj_(scope.in("k_b_proj"), model.n_head, model.head_dim(), model.kv_rank(),
                Transpose::no),
      v_b_proj_(scope.in("v_b_proj"), model.n_head, model.head_dim(), model.kv_rank(),
                Transpose::yes),
      o_proj_(scope.in("o_proj"), model.q_dim(), model.n_embd, model.linear_bias(),
              residual_sd(model)) {
  if (model.sink == configs::SinkKind::learned) {
    sinks_ = parameter(scope, "sinks", {model.n_head}, Init::zeros());
  }
  child(q_proj_);
  child(kv_a_proj_);
  for (const auto* norm : {&q_norm_, &k_norm_}) {
    if (*norm != nullptr) {
      child(**norm);
    }
  }
  child(kv_a_norm_);
  child(k_b_proj_);
  child(v_b_proj_);
  child(o_proj_);
}

Variable LatentAttention::forward(const Variable& x, const Pass& pass,
                                  const Positions& positions) const {
  const int64_t B = x.dim(0), T = x.dim(1), H = model_.n_head, Dn = model_.head_dim(),
                Dr = model_.rope_head_dim(), R = model_.kv_rank();
  const auto projected = Linear::forward_together(x, {&q_proj_, &kv_a_proj_});
  Variable q = projected[0].reshape({B, T, H, Dn + Dr});
  q = q_norm_ != nullptr ? q_norm_->forward(q) : q;
  const auto [q_nope, q_rope] = parts(q, Dn);
  auto [latent, k_rope] = parts(projected[1], R);
  const Variable absorbed = k_b_proj_.forward(q_nope);  // (B, T, H, R)
  const Variable v = kv_a_norm_.forward(latent).reshape({B, T, 1, R});
  Variable k = v;
  q = absorbed;
  const LayerMask seen = layer_mask(model_, layer_, pass);
  autograd::AttentionOptions options;
  options.scale = 1.0 / std::sqrt(static_cast<double>(Dn + Dr));
  options.mask = seen.mask;
  options.sink_logits = sinks_;
  if (k_rope.defined()) {
    k_rope = k_rope.reshape({B, T, 1, Dr});
    k_rope = k_norm_ != nullptr ? k_norm_->forward(k_rope) : k_rope;
    const auto turned = [&](const Variable& latent_part, const Variable& part,
                            const Tensor& angles) {
      return autograd::concat(latent_part, autograd::rope(part, angles, rope_style(model_)));
    };
    if (positions.sink_angles.defined() && !seen.own) {
      options.q_sink = turned(absorbed, q_rope, positions.sink_angles).value();
    }
    q = turned(absorbed, q_rope, positions.angles);
    k = turned(v, k_rope, positions.angles);
  }
  const Variable y = v_b_proj_.forward(attend(q, k, v, layer_, pass, options));
  return o_proj_.forward(y.reshape({B, T, model_.q_dim()}));
}

}  // namespace headroom::nn
