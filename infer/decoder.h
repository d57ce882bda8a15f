// How the logits of the next tokens come about: through a cache, or from whole sequences again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "infer/block_cache.h"
#include "infer/forward.h"

namespace headroom::infer {

/// What a decoder has done so far.
struct Work {
  int64_t passes = 0;      // of the model; a prompt's chunks count one each
  int64_t rows = 0;        // tokens that went through the layers, padding included
  int64_t logit_rows = 0;  // of those, the ones that the head was computed for
  int64_t flop = 0;        // 2 per multiply-add of the matrices and of attention
  int64_t cache_bytes_read = 0;
};

/// Sequences that grow side by side.
class Decoder {
 public:
  virtual ~Decoder() = default;

  /// Gives each sequence its tokens, perhaps none. Returns logits (N, V): for each sequence that
  /// was given some, in order, those after its last `rows` new tokens, or after all if they are
  /// fewer.
  Tensor feed(const Sequences& tokens, int64_t rows = 1);
  /// Tokens that a sequence has.
  virtual int64_t length(int64_t sequence) const = 0;
  /// Sequence b goes on from what parents[b] holds; -1: from nothing.
  virtual void reorder(std::span<const int64_t> parents) = 0;
  /// Forgets what the sequence was given from position `length` on. Throws Error when a window has
  /// moved on too far.
  virtual void truncate(int64_t sequence, int64_t length) = 0;
  /// The cache; nullptr where there is none.
  virtual BlockCache* cache() { return nullptr; }
  const Work& work() const { return work_; }

 protected:
  explicit Decoder(const nn::GPT& model);
  virtual void run(const Sequences& tokens, const OnHidden& on_hidden) = 0;
  /// What feed() returns, where the decoder has a shorter way for such tokens; absent otherwise.
  virtual Tensor step(const Sequences& /*tokens*/) { return {}; }
  /// Counts a pass over `rows` rows; the head's work for as many; and attention's FLOP for `count`
  /// queries from `first` on.
  void count_pass(int64_t rows);
  void count_logits(int64_t rows);
  void count_attention(int64_t first, int64_t count, kernels::AttentionMask mask);

  const nn::GPT& model_;
  Work work_;

 private:
  int64_t flop_per_row_;  // of a token's matrices, without the head
  int64_t flop_per_key_;  // of a query in one layer
};

/// Sequences of one length that a cache must have room for.
struct DecoderRoom {
  int64_t batch = 1;
  int64_t tokens = 1;
  int64_t chunk = 1;                   // as BlockTable's: what can be given at once, and taken back
  std::vector<int64_t> prefixes = {};  // as BlockMap's: beginnings that sequences will share
};

std::unique_ptr<Decoder> cached_decoder(const nn::GPT& model, kernels::AttentionMask mask,
                                        const DecoderRoom& room, const Storage& storage,
                                        DType dtype);
std::unique_ptr<Decoder> recomputing_decoder(const nn::GPT& model, kernels::AttentionMask mask,
                                             int64_t batch, DType dtype);

}  // namespace headroom::infer
