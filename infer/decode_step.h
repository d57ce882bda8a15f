// A token more of every sequence. Asking for each of a step's kernels takes a fifth of a small
// model's step on a processor, and on a GPU longer than the kernels do; so the step is recorded
// once and then repeated.
#pragma once

#include <memory>

#include "infer/block_cache.h"
#include "infer/forward.h"

namespace headroom::infer {

/// What changes from step to step lies in memory that stays where it is, and is filled by the host
/// before each: token ids, positions, and the cache's tables. The first step runs as any pass does,
/// the second is recorded, the others repeat it.
class DecodeStep {
 public:
  /// For sequences of a cache in memory of the model's device. `dtype` is the activations'.
  DecodeStep(const nn::GPT& model, BlockCache& cache, DType dtype);

  /// Whether these are tokens for a step: one or none for each sequence, and some.
  static bool is_step(const Sequences& tokens);
  /// Gives them to the cache. Returns logits (N, V) of those that were given one.
  Tensor run(const Sequences& tokens);
  /// Steps that repeated a recorded one.
  int64_t repeated() const { return repeated_; }

 private:
  void fill(const Sequences& tokens);
  void compute();

  const nn::GPT& model_;
  BlockCache& cache_;
  DType dtype_;
  Tensor counts_;                 // i32 (B), on the host
  Tensor ids_;                    // i32 (B, 1)
  nn::TokenPositions positions_;  // of (B, 1) tokens
  Tensor logits_;                 // (B, V); what was recorded writes it
  bool warm_ = false;             // a step has run
  std::unique_ptr<kernels::Recording> recording_;
  int64_t repeated_ = 0;
};

}  // namespace headroom::infer
