// Where the tokens of a pass stand, and the angles that rope turns them by.
#pragma once

#include "configs/config.h"
#include "nn/pass.h"

namespace headroom::nn {

struct Positions {
  /// i32 (B * T); or (T) where all rows share rope's angles, being whole sequences from 0.
  Tensor index;
  /// Rope's angles (rows of index, D/2, 2) at those positions; absent with learned positions.
  Tensor angles;
  /// The same for queries as sink keys see them; absent unless there are a window and sinks.
  Tensor sink_angles;
};

/// Positions of B rows of T tokens. Under a window W with s sinks a query at p meets the sinks as
/// if it stood at min(p, W + s - 1): StreamingLLM's positions inside the cache (arXiv 2309.17453,
/// section 3.2), without rotating a key twice.
Positions positions(const configs::ModelConfig& model, int64_t B, int64_t T, const Pass& pass,
                    Device device);

}  // namespace headroom::nn
