// Which tokens a training step reads. A batch is a function of the step alone, so a resumed run
// goes on with the sequences it would have read anyway.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/enums.h"
#include "tensor/tensor.h"

namespace headroom::train {

/// How the sequences of a step are divided: each of `workers` takes `micros` batches of `size`.
struct Share {
  int64_t size = 0, micros = 0;
};
/// batch_size * grad_accumulation sequences among workers, in batches of batch_size or less. Throws
/// InputError when they don't divide.
Share share_of_step(int64_t batch_size, int64_t grad_accumulation, int64_t workers);

/// Sequences and, for each position, the token that follows it; on the host, where what uses them
/// looks at them first.
struct Batch {
  Tensor tokens, targets;  // i32 (B, T)
};

struct BatchOptions {
  int64_t block_size = 0;
  int64_t batch_size = 0;
  int64_t grad_accumulation = 1;
  configs::Order order = configs::Order::random;
  uint64_t seed = 0;
};

/// The batches of a token stream. The batch_size * grad_accumulation sequences of a step are
/// numbered through, whatever way they are divided into batches.
///
/// order random: each sequence starts anywhere in the stream where block_size tokens and the target
/// of the last one fit; the start is a number of the stream (seed, "batches", step, sequence).
/// order sequential: sequences follow one another without overlap. A pass ends where the next
/// sequence would not fit; the fewer than block_size tokens left over are not read and the next
/// pass begins at the first token, within a batch if need be.
class Batches {
 public:
  /// Throws InputError unless there are block_size + 1 tokens.
  Batches(std::vector<int32_t> tokens, const BatchOptions& options);

  /// Batch `micro` (from 0, below grad_accumulation) of step `step` (from 1).
  Batch get(int64_t step, int64_t micro) const;
  /// Where sequence `index` of step `step` starts in the stream.
  int64_t start(int64_t step, int64_t index) const;
  /// How often the stream has been begun once `step` steps are done, from 1: passes of order
  /// sequential; for random the tokens read over the tokens there are.
  int64_t pass(int64_t step) const;

  int64_t batch_size() const { return options_.batch_size; }
  int64_t sequences_per_step() const { return options_.batch_size * options_.grad_accumulation; }
  int64_t tokens_per_step() const { return sequences_per_step() * options_.block_size; }
  /// Sequences that fit into one pass, and the tokens that a sequential pass leaves unread at its
  /// end.
  int64_t sequences_per_pass() const;
  int64_t leftover() const;

 private:
  std::vector<int32_t> tokens_;
  BatchOptions options_;
};

}  // namespace headroom::train
