// Which reliefs make a model's weights and cache fit a memory, and what each costs in loss where
// somebody measured it: `headroom plan --memory`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "configs/size.h"

namespace headroom::experiments {

/// What studies have measured, in nats per token.
struct MeasuredLosses {
  /// Of a row of a sweep, above its multi-head row: by n_kv_head, and by the names of the others
  /// ("mla", "window").
  std::map<int64_t, double> heads;
  std::map<std::string, double> rows;
  /// Of a cache that rounds, above one in f32 of the same model: by bits_figure() (kv_bits.h).
  std::map<std::string, double> types;
  /// Of a window, above full attention: by the number of sinks.
  std::map<int64_t, double> sinks;
  std::vector<std::string> sources;  // the files they are from

  bool empty() const { return sources.empty(); }
};

/// Reads what `folder` holds: results.json of a sweep, of `headroom reproduce`, or of both where
/// the sweep lies in the folder's sweep/. Throws InputError naming a file that is neither.
MeasuredLosses read_measured(const std::filesystem::path& folder);

/// What a cache is asked to hold, and the memory for it and the weights (float32).
struct Need {
  int64_t vocab_size = 0, context = 0, batch = 1;
  configs::KVTypes types;
  int64_t memory = 0;
};

struct RankedRelief {
  std::string name;  // "n_kv_head 2, int8 cache"
  int64_t weights_bytes = 0, cache_bytes = 0;
  bool fits = false;
  std::optional<double> loss;  // nats per token above the model as it is; absent: not measured
  bool slow = false;           // exact, but every token waits for a file
  bool retrains = false;       // another model, to be trained or converted
  std::string warning;         // empty: none

  int64_t total_bytes() const { return weights_bytes + cache_bytes; }
};

/// The model as it is, first; then every other relief, ranked: those that fit before those that
/// don't; among them the measured ones by loss, then those not measured, the least drastic (the
/// largest) first, then what is slow, and last what comes with a warning.
std::vector<RankedRelief> rank_reliefs(const configs::ModelConfig& model, const Need& need,
                                       const MeasuredLosses& measured);

}  // namespace headroom::experiments
