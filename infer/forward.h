// Running a model over sequences of token ids: through a cache, in pieces, or whole without one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/gpt.h"

namespace headroom::infer {

/// Token ids of the sequences of a batch; they may differ in length, and some may be empty.
using Sequences = std::vector<std::vector<int32_t>>;

/// Prompt tokens of a sequence per pass: enough rows for a matrix product to run at its best.
inline constexpr int64_t kPrefillChunk = 512;

/// The same for a cache under `mask`: where that or a layer of the model has a window, one block at
/// a time, since more would need a larger ring than decoding does.
int64_t prefill_chunk(const configs::ModelConfig& model, const kernels::AttentionMask& mask);

/// Receives the hidden rows (n, C) of n tokens of a sequence, the first of which is its first-th of
/// those given. The rows are views: they hold until it returns.
using OnHidden = std::function<void(int64_t sequence, int64_t first, const Tensor& rows)>;

/// Gives every sequence of the cache its tokens, at most `chunk` of each in a pass; a sequence that
/// has none left costs no attention and changes nothing for the others. `dtype` is the activations'
/// and the cache's type.
void feed(const nn::GPT& model, nn::KVCache& cache, const Sequences& tokens, int64_t chunk,
          DType dtype, const OnHidden& on_hidden);

/// The same for whole sequences from position 0, without a cache, under `mask`.
void feed_whole(const nn::GPT& model, const Sequences& tokens, kernels::AttentionMask mask,
                DType dtype, const OnHidden& on_hidden);

/// Keeps the hidden row of each sequence's last token, so that the head is computed for no other.
class LastRows {
 public:
  explicit LastRows(const Sequences& tokens) : tokens_(tokens), rows_(tokens.size()) {}
  OnHidden keeper();
  /// Logits (N, V) in the compute type for the N sequences that were given tokens, in order.
  Tensor logits(const nn::GPT& model) const;

 private:
  const Sequences& tokens_;
  std::vector<Tensor> rows_;  // (1, C); absent where nothing was given
};

}  // namespace headroom::infer
