// Running a model over sequences of token ids: through a cache, in pieces, or whole without one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/gpt.h"

namespace headroom::infer {

/// Token ids of the sequences of a batch; they may differ in length, and some may be empty.
using Sequences = std::vector<std::vector<int32_t>>;
int64_t count_tokens(const Sequences& tokens);

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

/// Keeps the hidden rows of each sequence's last tokens, so that the head is computed for no other.
class LastRows {
 public:
  /// Of the last `most` tokens that a sequence is given, or of all where they are fewer.
  explicit LastRows(const Sequences& tokens, int64_t most = 1)
      : tokens_(tokens), most_(most), rows_(tokens.size()) {}
  OnHidden keeper();
  /// Logits (N, V) in the compute type for the N rows of all sequences, in order.
  Tensor logits(const nn::GPT& model) const;

 private:
  const Sequences& tokens_;
  int64_t most_;
  std::vector<Tensor> rows_;  // (n, C); absent where nothing was given
};

}  // namespace headroom::infer
