// Layers with the same slots, counted and multiplied.
#include "infer/cache_size.h"

#include <algorithm>

#include "configs/count.h"
#include "nn/positions.h"

namespace headroom::infer {

BlockTable layer_table(const configs::ModelConfig& model, int64_t layer, const BlockTable& table) {
  return table.with_mask(nn::layer_mask(model, layer, table.mask()).mask);
}

std::vector<AlikeLayers> alike_layers(const configs::ModelConfig& model, const BlockTable& table) {
  const int64_t local = configs::local_layers(model);
  std::vector<AlikeLayers> all;
  const auto period = static_cast<int64_t>(model.window_pattern.size());
  for (int64_t i = 0; i < std::min(period, model.n_layer); ++i) {
    const bool is_local = configs::layer_window(model, i).window > 0;
    const AlikeLayers found{is_local ? local : model.n_layer - local,
                            layer_table(model, i, table).slots()};
    if (std::find(all.begin(), all.end(), found) == all.end()) {
      all.push_back(found);
    }
  }
  if (all.size() == 2 && all[0].slots == all[1].slots) {
    all = {{model.n_layer, all[0].slots}};
  }
  return all;
}

namespace {

configs::ModelConfig with_layers(const configs::ModelConfig& model, int64_t layers) {
  configs::ModelConfig part = model;
  part.n_layer = layers;
  return part;
}

}  // namespace

int64_t cache_bytes(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
                    configs::KVTypes types, std::span<const int64_t> prefixes) {
  configs::Count sum;
  const auto period = static_cast<int64_t>(model.window_pattern.size());
  for (int64_t i = 0; i < std::min(period, model.n_layer); ++i) {
    const int64_t layers = (model.n_layer - i + period - 1) / period;  // i, i + period, ...
    sum += configs::Count(configs::cache_bytes_per_token(model, types)) * layers *
           planned_slots(layer_table(model, i, table), batch, prefixes);
  }
  return sum.value();
}

std::string cache_formula(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
                          configs::KVTypes types) {
  std::vector<std::string> parts;
  for (const auto& [layers, slots] : alike_layers(model, table)) {
    parts.push_back(configs::cache_formula(with_layers(model, layers), slots, batch, types));
  }
  return fmt::format("{}", fmt::join(parts, ", and "));
}

}  // namespace headroom::infer
