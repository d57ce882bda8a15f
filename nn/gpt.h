// A decoder-only, pre-norm transformer. Training, prefill and decoding run this one forward pass:
//
//   x = embed(tokens)
//   for each block:  x += attention(norm(x));  x += mlp(norm(x))
//   logits = head(norm(x))
//
// Each addition is made together with the norm that follows it, so a block hands on {x, what is
// still to be added to x}.
#pragma once

#include <memory>
#include <vector>

#include "nn/attention.h"
#include "nn/latent_attention.h"
#include "nn/mlp.h"

namespace headroom::nn {

/// The residual stream x (B, T, C) and a delta not yet added to it (absent before the first block).
struct Residual {
  Variable x, delta;
};

class Block : public Module {
 public:
  Block(const Scope& scope, const configs::ModelConfig& model, int64_t layer);
  Residual forward(const Residual& in, const Pass& pass, const Positions& positions) const;
  /// The layers that multiply with matrices, and those with a matrix per head.
  std::vector<Linear*> linears();
  std::vector<const HeadLinear*> head_linears() const;

 private:
  std::string name_;
  double dropout_;
  Norm input_norm_;
  std::unique_ptr<Attention> attention_;               // unless it is latent
  std::unique_ptr<LatentAttention> latent_attention_;  // under mla
  Norm post_attention_norm_;
  MLP mlp_;
};

class GPT : public Module {
 public:
  /// `vocab_size` is the tokenizer's. The scope's name is ignored: names are Hugging Face Llama's.
  GPT(const configs::ModelConfig& model, int64_t vocab_size, const Scope& scope);

  /// Last norm's output (B, T, C) for tokens i32 (B, T).
  Variable hidden(const Tensor& tokens, const Pass& pass) const;
  /// Logits (N, V) in the compute type for rows (N, C) of hidden().
  Variable head(const Variable& rows) const;
  /// From now on inference multiplies with every matrix, the head among them, as f32, bf16 or i8
  /// (Linear::store). Embeddings and MLA's matrices per head stay as they are, and so does
  /// training. Caches filled before are refused.
  void store_weights(DType type);
  /// Bytes of the matrices that a pass under activations of this type multiplies with.
  int64_t weight_bytes(DType activations) const;
  /// Mean loss over the targets i32 (B, T) that are not -1, in nats per token.
  Variable loss(const Tensor& tokens, const Tensor& targets, const Pass& pass) const;

  /// Changes with every change of the weights: what KVCache::bind() is told.
  uint64_t weights_version() const { return version() + times_stored_; }

  const configs::ModelConfig& config() const { return config_; }
  int64_t vocab_size() const { return vocab_size_; }
  Device device() const { return embed_tokens_.weight().device(); }
  DType dtype() const { return embed_tokens_.weight().dtype(); }

 private:
  const configs::ModelConfig config_;
  int64_t vocab_size_;
  Embedding embed_tokens_;
  std::unique_ptr<Embedding> embed_positions_;  // learned positions only
  std::vector<std::unique_ptr<Block>> layers_;
  Norm norm_;
  std::unique_ptr<Linear> lm_head_;  // a parameter of its own unless tied
  std::vector<Linear*> linears_;     // all layers', the head last
  uint64_t times_stored_ = 0;
};

}  // namespace headroom::nn
