// What a cache of blocks costs, before it is made.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "configs/config.h"
#include "configs/size.h"
#include "infer/block_map.h"

namespace headroom::infer {

/// The table of a layer, whose own window may be narrower than that of the cache (nn::layer_mask).
BlockTable layer_table(const configs::ModelConfig& model, int64_t layer, const BlockTable& table);

/// Layers in which a sequence has equally many slots.
struct AlikeLayers {
  int64_t layers, slots;
  bool operator==(const AlikeLayers&) const = default;
};
std::vector<AlikeLayers> alike_layers(const configs::ModelConfig& model, const BlockTable& table);

/// configs::cache_bytes() of the slots that each layer has, summed, and the formula as text. This
/// is what a BlockCache holds whose sequences share nothing; of one whose sequences share
/// `prefixes` as BlockMap's do, cache_bytes() alone knows.
int64_t cache_bytes(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
                    configs::KVTypes types, std::span<const int64_t> prefixes = {});
std::string cache_formula(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
                          configs::KVTypes types);

}  // namespace headroom::infer
