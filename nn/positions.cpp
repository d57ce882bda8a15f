// Positions of every row, and rope's tables for them: made once per pass, used by all layers.
#include "nn/positions.h"

#include <algorithm>
#include <vector>

#include "configs/size.h"

namespace headroom::nn {

namespace {

std::vector<int32_t> indices(int64_t B, int64_t T, const Pass& pass) {
  std::vector<int32_t> index;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t first = pass.cache == nullptr ? 0 : pass.cache->position(b);
    const int64_t count = pass.cache == nullptr ? T : pass.counts.data<int32_t>()[b];
    for (int64_t t = 0; t < T; ++t) {  // padding repeats the last position: any valid one will do
      index.push_back(
          static_cast<int32_t>(first + std::clamp<int64_t>(t, 0, std::max<int64_t>(count - 1, 0))));
    }
  }
  return index;
}

Tensor angles(const configs::ModelConfig& model, const Tensor& index, DType dtype) {
  const int64_t rotated = model.mla() ? model.rope_head_dim() : model.head_dim();
  Tensor table =
      Tensor::empty({index.numel(), rotated / 2, 2}, compute_type(dtype), index.device());
  kernels::backend(index.device()).rope_table(index, model.rope_base, table);
  return table;
}

/// How far from a sink the queries of layers under a window from outside seem to be at most; 0
/// where no layer has one with sinks.
int64_t furthest_from_sinks(const configs::ModelConfig& model, const Pass& pass) {
  for (int64_t layer = 0; layer < model.n_layer; ++layer) {
    const auto [mask, own] = layer_mask(model, layer, pass);
    if (!own && mask.window > 0 && mask.sinks > 0) {
      return mask.window + mask.sinks - 1;
    }
  }
  return 0;
}

}  // namespace

LayerMask layer_mask(const configs::ModelConfig& model, int64_t layer,
                     const kernels::AttentionMask& around) {
  const configs::LayerWindow own = configs::layer_window(model, layer);
  if (own.window > 0 && (around.window == 0 || around.window >= own.window)) {
    return {{own.window, own.sinks}, true};
  }
  return {around, false};
}

LayerMask layer_mask(const configs::ModelConfig& model, int64_t layer, const Pass& pass) {
  return layer_mask(model, layer, pass.cache == nullptr ? pass.mask : pass.cache->mask(layer));
}

TokenPositions token_positions(const configs::ModelConfig& model, int64_t B, int64_t T,
                               const Pass& pass) {
  const bool shared = pass.cache == nullptr && model.position == configs::Position::rope;
  std::vector<int32_t> index = indices(shared ? 1 : B, T, pass);
  const auto rows = static_cast<int64_t>(index.size());
  TokenPositions result{.index = Tensor::from(index, {rows}), .sink_index = {}};
  if (model.position == configs::Position::learned) {
    const int32_t last = index.empty() ? 0 : *std::max_element(index.begin(), index.end());
    check_input(last < model.block_size,
                "[positions] a model with learned positions ends at model.block_size {}: asked for "
                "position {}",
                model.block_size, last);
    return result;
  }
  if (const int64_t furthest = furthest_from_sinks(model, pass); furthest > 0) {
    std::transform(index.begin(), index.end(), index.begin(),
                   [&](int32_t p) { return static_cast<int32_t>(std::min<int64_t>(p, furthest)); });
    result.sink_index = Tensor::from(index, {rows});
  }
  return result;
}

Positions positions(const configs::ModelConfig& model, int64_t B, int64_t T, const Pass& pass,
                    Device device) {
  const TokenPositions tokens =
      pass.positions != nullptr ? *pass.positions : token_positions(model, B, T, pass);
  Positions result{.index = tokens.index.to(device), .angles = {}, .sink_angles = {}};
  if (model.position == configs::Position::rope) {
    result.angles = angles(model, result.index, pass.dtype);
    if (tokens.sink_index.defined()) {
      result.sink_angles = angles(model, tokens.sink_index.to(device), pass.dtype);
    }
  }
  return result;
}

}  // namespace headroom::nn
