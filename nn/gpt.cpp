// The forward pass, read from hidden() down.
#include "nn/gpt.h"

#include "configs/size.h"
#include "kernels/kv_view.h"
#include "nn/init.h"

namespace headroom::nn {

namespace {

/// Dropout on the named branch, in training only. The numbers of sequence s start at s * T * C.
Variable dropped(const Variable& x, double p, const std::string& name, const Pass& pass) {
  if (pass.dropout == nullptr || p == 0) {
    return x;
  }
  const RandomStream stream(pass.dropout->seed, "dropout/" + name,
                            static_cast<uint64_t>(pass.dropout->step));
  return autograd::dropout(x, p, stream, pass.dropout->first_sequence * x.dim(1) * x.dim(2));
}

Scope root(const Scope& scope) {
  Scope result = scope;
  result.name = "model";
  return result;
}

}  // namespace

Block::Block(const Scope& scope, const configs::ModelConfig& model, int64_t layer)
    : name_(scope.name),
      dropout_(model.dropout),
      input_norm_(scope.in("input_layernorm"), model.n_embd, model.norm, model.norm_bias(),
                  model.norm_eps),
      attention_(model.mla() ? nullptr
                             : std::make_unique<Attention>(scope.in("self_attn"), model, layer)),
      latent_attention_(model.mla()
                            ? std::make_unique<LatentAttention>(scope.in("self_attn"), model, layer)
                            : nullptr),
      post_attention_norm_(scope.in("post_attention_layernorm"), model.n_embd, model.norm,
                           model.norm_bias(), model.norm_eps),
      mlp_(scope.in("mlp"), model) {
  child(input_norm_);
  if (attention_ != nullptr) {
    child(*attention_);
  } else {
    child(*latent_attention_);
  }
  child(post_attention_norm_);
  child(mlp_);
}

std::vector<Linear*> Block::linears() {
  std::vector<Linear*> all =
      attention_ != nullptr ? attention_->linears() : latent_attention_->linears();
  for (Linear* linear : mlp_.linears()) {
    all.push_back(linear);
  }
  return all;
}

std::vector<const HeadLinear*> Block::head_linears() const {
  return latent_attention_ != nullptr ? latent_attention_->head_linears()
                                      : std::vector<const HeadLinear*>();
}

Residual Block::forward(const Residual& in, const Pass& pass, const Positions& positions) const {
  const auto [x, normed] = input_norm_.forward(in.x, in.delta);
  const Variable attended = attention_ != nullptr
                                ? attention_->forward(normed, pass, positions)
                                : latent_attention_->forward(normed, pass, positions);
  const auto [y, normed_again] =
      post_attention_norm_.forward(x, dropped(attended, dropout_, name_ + ".self_attn", pass));
  return {y, dropped(mlp_.forward(normed_again), dropout_, name_ + ".mlp", pass)};
}

GPT::GPT(const configs::ModelConfig& model, int64_t vocab_size, const Scope& scope)
    : config_(model),
      vocab_size_(vocab_size),
      embed_tokens_(root(scope).in("embed_tokens"), vocab_size, model.n_embd, kInitSd),
      norm_(root(scope).in("norm"), model.n_embd, model.norm, model.norm_bias(), model.norm_eps) {
  child(embed_tokens_);
  if (model.position == configs::Position::learned) {
    embed_positions_ = std::make_unique<Embedding>(root(scope).in("embed_positions"),
                                                   model.block_size, model.n_embd, kInitSd);
    child(*embed_positions_);
  }
  for (int64_t layer = 0; layer < model.n_layer; ++layer) {
    layers_.push_back(
        std::make_unique<Block>(root(scope).in(fmt::format("layers.{}", layer)), config_, layer));
    child(*layers_.back());
    for (Linear* linear : layers_.back()->linears()) {
      linears_.push_back(linear);
    }
  }
  child(norm_);
  if (model.tie_embeddings) {
    lm_head_ = std::make_unique<Linear>(embed_tokens_.weight());
  } else {
    Scope top = scope;
    top.name = "lm_head";
    lm_head_ = std::make_unique<Linear>(top, model.n_embd, vocab_size, false, kInitSd);
    child(*lm_head_);
  }
  linears_.push_back(lm_head_.get());
}

Variable GPT::hidden(const Tensor& tokens, const Pass& pass) const {
  check(tokens.rank() == 2, "[gpt] tokens (B, T) are needed: got {}", tokens.shape());
  const int64_t B = tokens.dim(0), T = tokens.dim(1);
  Pass run = pass;
  if (pass.cache != nullptr) {
    check(!autograd::recording(), "[gpt] a cache is for inference: turn gradients off (NoGrad)");
    check(pass.cache->batch() == B, "[gpt] a cache of {} sequences for a batch of {}",
          pass.cache->batch(), B);
    pass.cache->bind(weights_version());
    if (!run.counts.defined()) {
      run.counts =
          Tensor::from(std::vector<int32_t>(static_cast<size_t>(B), static_cast<int32_t>(T)), {B});
    }
  } else {
    run.tables = kernels::dense_tables(B, T, T, device());
  }
  const Positions where = positions(config_, B, T, run, device());
  Variable x = embed_tokens_.forward(tokens, run.dtype);
  if (embed_positions_ != nullptr) {
    x = autograd::add(x, embed_positions_->forward(where.index.reshape({B, T}), run.dtype));
  }
  Residual stream{dropped(x, config_.dropout, "embed", run), {}};
  for (const auto& layer : layers_) {
    stream = layer->forward(stream, run, where);
  }
  return norm_.forward(stream.x, stream.delta).second;
}

Variable GPT::head(const Variable& rows) const {
  Variable wide = rows;
  if (rows.dtype() != dtype()) {
    check(!autograd::recording(),
          "[gpt] head() takes bf16 rows only for inference; training uses loss()");
    // Logits are compared and exponentiated: bf16 is too coarse for them.
    Tensor value = Tensor::empty(rows.shape(), dtype(), rows.device());
    kernels::backend(rows.device()).cast(rows.value(), value);
    wide = Variable(value);
  }
  const Variable logits = lm_head_->forward(wide);
  return config_.logit_softcap > 0 ? autograd::softcap(logits, config_.logit_softcap) : logits;
}

Variable GPT::loss(const Tensor& tokens, const Tensor& targets, const Pass& pass) const {
  const Variable h = hidden(tokens, pass);
  return autograd::linear_cross_entropy(h.reshape({tokens.numel(), config_.n_embd}),
                                        lm_head_->weight(), targets.reshape({targets.numel()}),
                                        config_.logit_softcap, configs::head_rows(vocab_size_));
}

void GPT::store_weights(DType type) {
  for (Linear* linear : linears_) {
    linear->store(type);
  }
  ++times_stored_;
}

int64_t GPT::weight_bytes(DType activations) const {
  size_t sum = 0;
  for (const Linear* linear : linears_) {
    const bool head = linear == lm_head_.get();
    const kernels::Weights w = linear->stored(head ? dtype() : activations);
    sum += w.values.nbytes() + (w.scales.defined() ? w.scales.nbytes() : 0);
  }
  for (const auto& layer : layers_) {
    for (const HeadLinear* heads : layer->head_linears()) {
      sum += heads->weight().as(activations).nbytes();
    }
  }
  return static_cast<int64_t>(sum);
}

}  // namespace headroom::nn
