// The loss of a stream of tokens as a cache lets the model see it: what each token costs after all
// that came before and that the cache still shows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "infer/cache_spec.h"
#include "nn/gpt.h"

namespace headroom::infer {

/// Receives the losses, in nats, of consecutive targets: the first is predicted at `position` of
/// its stream. The numbers hold until it returns.
using OnLosses = std::function<void(int64_t position, std::span<const double> nats)>;

/// Gives the cache, of one sequence, all of ids but the last, at most `chunk` tokens in a pass, and
/// predicts all but the first. Returns the sum of the losses. `dtype` is the activations'.
double losses_through(const nn::GPT& model, nn::KVCache& cache, std::span<const int32_t> ids,
                      int64_t chunk, DType dtype, const OnLosses& on_losses);

struct StreamOptions {
  CacheSpec cache;
  /// Targets of a stream: the next stream begins with an empty cache. 0: all are one stream.
  int64_t context = 0;
  DType dtype = DType::f32;  // of activations and, where the spec names none, of the cache
  int64_t chunk = 0;         // tokens given at once; 0: what runs best
};

struct StreamLoss {
  double sum_nats = 0;
  int64_t tokens = 0;                        // predicted: all but the first
  int64_t streams = 0;                       // each of the context's length, the last one short
  int64_t cache_slots = 0, cache_bytes = 0;  // of one stream; 0 without a cache
};

/// Every token but the first is predicted once; context and losses are those of one pass over each
/// stream under the spec's mask, so that without a window, or in a stream shorter than it, the sum
/// is that of train::evaluate() over windows of as many tokens. `none` makes that pass in one
/// piece. Throws InputError for fewer than two tokens, and where a stream passes the end of learned
/// positions.
StreamLoss stream_loss(const nn::GPT& model, std::span<const int32_t> ids,
                       const StreamOptions& options, const OnLosses& on_losses);

}  // namespace headroom::infer
