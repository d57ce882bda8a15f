// Where the tokens of a pass stand, and the angles that rope turns them by.
#pragma once

#include "configs/config.h"
#include "nn/pass.h"

namespace headroom::nn {

/// The keys that the queries of one layer see.
struct LayerMask {
  kernels::AttentionMask mask;
  /// The window is the model's own. It was trained with that one, sinks included: queries then meet
  /// sinks at their true distance.
  bool own = false;
};

/// The narrower of the layer's own window and the mask `around` it, which is the pass's or the
/// cache's; its own where they are equally wide. Applied to its own result it changes nothing.
LayerMask layer_mask(const configs::ModelConfig& model, int64_t layer,
                     const kernels::AttentionMask& around);

/// The same in a pass.
LayerMask layer_mask(const configs::ModelConfig& model, int64_t layer, const Pass& pass);

/// Positions of B rows of T tokens, on the host. Under a window W with s sinks a query at p meets
/// the sinks as if it stood at min(p, W + s - 1): StreamingLLM's positions inside the cache (arXiv
/// 2309.17453, section 3.2), without rotating a key twice.
TokenPositions token_positions(const configs::ModelConfig& model, int64_t B, int64_t T,
                               const Pass& pass);

/// Token positions on the model's device, and what is computed from them.
struct Positions {
  Tensor index;  // TokenPositions::index
  /// Rope's angles (rows of index, D/2, 2) at those positions, D being what rope rotates (under mla
  /// rope_head_dim); absent with learned positions.
  Tensor angles;
  /// The same at sink_index; absent where that is.
  Tensor sink_angles;
};

/// The components that the model's rope pairs up.
inline kernels::RopeStyle rope_style(const configs::ModelConfig& model) {
  return model.rope_style == configs::RopeStyle::half ? kernels::RopeStyle::half
                                                      : kernels::RopeStyle::interleaved;
}

/// Those of the pass, or token_positions() on the device.
Positions positions(const configs::ModelConfig& model, int64_t B, int64_t T, const Pass& pass,
                    Device device);

}  // namespace headroom::nn
