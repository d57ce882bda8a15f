// Project, rotate, attend, project back: with a cache and without one.
#include "nn/attention.h"

#include <cmath>

#include "nn/init.h"

namespace headroom::nn {

namespace {

/// Each head times a Hadamard matrix: for inference only, and nothing is recorded.
Variable turned(const Variable& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::backend(x.device()).hadamard(x.value(), y);
  return Variable(y);
}

}  // namespace

Attention::Attention(const Scope& scope, const configs::ModelConfig& model, int64_t layer)
    : model_(model),
      layer_(layer),
      q_proj_(scope.in("q_proj"), model.n_embd, model.q_dim(), model.linear_bias(), kInitSd),
      k_proj_(scope.in("k_proj"), model.n_embd, model.kv_dim(), model.linear_bias(), kInitSd),
      v_proj_(scope.in("v_proj"), model.n_embd, model.kv_dim(), model.linear_bias(), kInitSd),
      o_proj_(scope.in("o_proj"), model.q_dim(), model.n_embd, model.linear_bias(),
              residual_sd(model)) {
  if (model.sink == configs::SinkKind::learned) {
    sinks_ = parameter(scope, "sinks", {model.n_head}, Init::zeros());
  }
  child(q_proj_);
  child(k_proj_);
  child(v_proj_);
  if (model.qk_norm) {
    for (auto* norm : {&q_norm_, &k_norm_}) {
      const char* name = norm == &q_norm_ ? "q_norm" : "k_norm";
      *norm = std::make_unique<Norm>(scope.in(name), model.head_dim(), configs::Norm::rmsnorm,
                                     false, model.norm_eps);
      child(**norm);
    }
  }
  child(o_proj_);
}

Variable Attention::forward(const Variable& x, const Pass& pass, const Positions& positions) const {
  const int64_t B = x.dim(0), T = x.dim(1), D = model_.head_dim();
  const auto projected = Linear::forward_together(x, {&q_proj_, &k_proj_, &v_proj_});
  Variable q = projected[0].reshape({B, T, model_.n_head, D});
  Variable k = projected[1].reshape({B, T, model_.n_kv_head, D});
  const Variable v = projected[2].reshape({B, T, model_.n_kv_head, D});
  if (q_norm_ != nullptr) {
    q = q_norm_->forward(q);
    k = k_norm_->forward(k);
  }
  const LayerMask seen = layer_mask(model_, layer_, pass);
  autograd::AttentionOptions options;
  options.scale = 1.0 / std::sqrt(static_cast<double>(D));
  options.mask = seen.mask;
  options.sink_logits = sinks_;
  if (positions.angles.defined()) {
    const kernels::RopeStyle style = rope_style(model_);
    if (positions.sink_angles.defined() && !seen.own) {
      options.q_sink = autograd::rope(q, positions.sink_angles, style).value();
    }
    q = autograd::rope(q, positions.angles, style);
    k = autograd::rope(k, positions.angles, style);
  }
  if (pass.cache != nullptr && pass.cache->rotates_keys()) {
    q = turned(q);
    k = turned(k);
    options.q_sink = options.q_sink.defined() ? turned(Variable(options.q_sink)).value() : Tensor();
  }
  const Variable y = attend(q, k, v, layer_, pass, options);
  return o_proj_.forward(y.reshape({B, T, model_.q_dim()}));
}

}  // namespace headroom::nn
