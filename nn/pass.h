// How one forward pass runs. The model is const; everything that changes is handed in here.
#pragma once

#include <functional>

#include "kernels/backend.h"
#include "nn/kv_cache.h"

namespace headroom::nn {

/// Which of dropout's random numbers a training pass uses: those of (seed, step), for sequences
/// first_sequence onwards, so that splitting a batch shifts nobody's.
struct DropoutStream {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sequence = 0;
};

/// Sees what each layer's attention was given and the log-sum-exp (B, T, H) of its scores: the mass
/// that a query gives to a key is exp(score - lse).
using AttentionWatch =
    std::function<void(int64_t layer, const kernels::AttentionInputs& in, const Tensor& lse)>;

/// Where the tokens of a pass stand.
struct TokenPositions {
  /// i32 (B * T); or (T) where all rows share rope's angles, being whole sequences from 0.
  Tensor index;
  /// The same for queries as sink keys see them; absent unless there are a window and sinks that
  /// are not the model's own.
  Tensor sink_index;
};

struct Pass {
  /// Activations: f32 or bf16 for a model in f32, f64 for one in f64.
  DType dtype = DType::f32;
  /// Absent: the tokens are whole sequences from position 0.
  KVCache* cache = nullptr;
  /// i32 (B) on the host: how many of each row's T tokens are real, the others being padding at the
  /// end; absent: all.
  Tensor counts = {};
  /// On the model's device, from token_positions() of such a pass: whoever has them there already,
  /// and has made room in the cache, leaves the pass nothing to do for the host. Absent: made here.
  const TokenPositions* positions = nullptr;
  /// Without a cache: the tables of the pass's keys, from kernels::dense_tables(). GPT::hidden()
  /// makes them, once for all layers.
  kernels::KVView tables = {};
  /// Without a cache: the keys a query sees. With one, the cache decides.
  kernels::AttentionMask mask = {};
  /// Absent: no dropout.
  const DropoutStream* dropout = nullptr;
  /// Absent: nobody looks.
  const AttentionWatch* watch = nullptr;
};

}  // namespace headroom::nn
