// A model that inference benchmarks time: untrained, fed random tokens, with a cache that can be
// filled without computing what it would hold.
#pragma once

#include <cstdint>
#include <memory>

#include "infer/decoder.h"
#include "nn/gpt.h"

namespace headroom::experiments {

/// Milliseconds of a pass over one prompt of `tokens` tokens through an empty cache, up to the
/// logits of its last token.
double prefill_ms(const nn::GPT& model, int64_t tokens, DType dtype);

/// Milliseconds of the next token's logits without a cache: the whole of `tokens` tokens again.
double naive_step_ms(const nn::GPT& model, int64_t tokens, DType dtype);

/// Sequences that all have some context, decoded together.
class TimedDecode {
 public:
  /// `batch` sequences with room for `most` tokens each; activations and cache in `dtype`.
  TimedDecode(const nn::GPT& model, int64_t batch, int64_t most, DType dtype);
  /// Brings every sequence to `context` tokens with keys and values that are random numbers: what
  /// they are changes no time. Then takes the steps that are unlike all others: the
  /// first runs as it comes, the second is recorded (infer/decode_step.h).
  void fill(int64_t context);
  /// Milliseconds of one more token for every sequence, as generation takes it: forward pass,
  /// logits and greedy choice. The context stays as it was.
  double step_ms();

 private:
  const nn::GPT& model_;
  int64_t batch_;
  DType dtype_;
  std::unique_ptr<infer::Decoder> decoder_;
  infer::Sequences next_;
};

}  // namespace headroom::experiments
