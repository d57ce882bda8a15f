// Text as the exhibits on a trained model read it: passages of equal length, and a model's loss on
// them under a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/forward.h"
#include "infer/stream_loss.h"

namespace headroom::experiments {

/// Sequences of `tokens` + 1 ids: `tokens` are given to the model, and each predicts the next one.
struct Passages {
  infer::Sequences ids;
  int64_t tokens = 0;

  int64_t count() const { return static_cast<int64_t>(ids.size()); }
  int64_t targets() const { return count() * tokens; }
};

/// Up to `count` passages that don't overlap, evenly spaced over `ids`: as many as there are.
/// Throws InputError when there isn't one.
Passages cut_passages(std::span<const int32_t> ids, int64_t count, int64_t tokens);

/// A part of the work is done, of how many equally long ones.
using PartDone = std::function<void(int64_t done, int64_t all)>;

/// The loss of passages, in nats per token.
struct PassageLoss {
  double mean = 0;
  std::vector<double> by_position;  // mean over the passages of the token at each position
  std::vector<double> by_passage;   // mean of each one
  int64_t cache_bytes = 0;          // of one passage's cache, as it is held
};

/// Each passage through a cache of its own, from its first token on.
PassageLoss passage_loss(const nn::GPT& model, const Passages& passages,
                         const infer::CacheSpec& cache);

}  // namespace headroom::experiments
