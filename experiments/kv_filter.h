// A cache between the model and another cache, through which keys and values can be looked at, or
// changed, as they were before rope turned them. That is done on the host, wherever the model is.
#pragma once

#include <functional>
#include <memory>

#include "configs/config.h"
#include "nn/kv_cache.h"

namespace headroom::experiments {

class KVFilter final : public nn::KVCache {
 public:
  /// Is given rows (N, 2 K D), f32, on the host: of each new token the keys of all heads before
  /// rotation, then the values. Returns whether it changed them; otherwise what came is handed on
  /// as it is.
  using Change = std::function<bool(int64_t layer, Tensor& rows)>;

  /// `inner` gets what is handed on. Throws InputError for a model with latent attention, whose
  /// cache holds no keys and values of heads.
  KVFilter(const configs::ModelConfig& model, std::unique_ptr<nn::KVCache> inner, Change change);

  int64_t batch() const override { return inner_->batch(); }
  int64_t position(int64_t sequence) const override { return inner_->position(sequence); }
  kernels::AttentionMask mask(int64_t layer) const override { return inner_->mask(layer); }
  bool rotates_keys() const override { return inner_->rotates_keys(); }
  /// Every sequence gets as many tokens as the others: f32, no padding.
  kernels::KVView append(int64_t layer, const Tensor& k, const Tensor& v,
                         const Tensor& counts) override;

 private:
  Tensor angles(int64_t new_tokens);
  void turn(Tensor& k, kernels::Direction direction) const;

  const configs::ModelConfig model_;
  std::unique_ptr<nn::KVCache> inner_;
  Change change_;
  Tensor angles_;  // of the pass under way; absent with learned positions
};

}  // namespace headroom::experiments
