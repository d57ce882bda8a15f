// What `headroom plan` was asked about, settled, and what is computed of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "configs/size.h"
#include "experiments/advice.h"
#include "train/precision.h"

namespace headroom::cli {

struct Plan {
  configs::Config config;
  std::string name;  // of the config, run or preset
  int64_t vocab_size = 0;
  int64_t context = 0, batch = 0;    // tokens of a sequence and sequences in the cache
  std::string dtype;                 // of cached keys and values
  configs::KVTypes cache_types;      // the same
  train::PrecisionChoice precision;  // of the activations
  std::optional<int64_t> memory;     // bytes to fit into
  /// With memory: what would make it fit, ranked, and what was measured of it.
  std::vector<experiments::RankedRelief> reliefs;
  experiments::MeasuredLosses measured;

  const configs::ModelConfig& model() const { return config.model; }
  int64_t activation_bytes() const;
};

/// The model's own n_kv_head, then every other divisor of n_head, descending.
std::vector<int64_t> kv_head_choices(const configs::ModelConfig& model);

/// The model with grouped-query attention over so many KV heads, whatever its own attention is.
configs::ModelConfig with_kv_heads(const configs::ModelConfig& model, int64_t kv_heads);

/// What fits into plan.memory beside the weights (float32) of `model`, which is the plan's with
/// another n_kv_head. A learned position table ends at block_size.
struct Fit {
  int64_t context = 0;  // tokens at the plan's batch
  int64_t batch = 0;    // sequences of the plan's context
};
Fit find_fit(const Plan& plan, const configs::ModelConfig& model);

/// The reliefs as a table, and as JSON.
std::string advice_text(const Plan& plan);
nlohmann::ordered_json advice_json(const Plan& plan);

/// Every figure with its formula, for people.
std::string plan_text(const Plan& plan);

}  // namespace headroom::cli
