// What a checkpoint knows besides tensors: where its run stands and what belongs to it. Everything
// else that a resumed run needs (its next sequences, its random numbers, its rate) is a function of
// the step and the config.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "configs/config.h"
#include "tensor/safetensors.h"

namespace headroom::train {

struct RunState {
  int64_t step = 0;             // updates done
  int64_t sequences = 0;        // read so far: the position in the data
  int64_t evaluated_step = -1;  // of the last evaluation; -1: none yet
  double val_loss = 0;          // of that evaluation, in nats per token
  int64_t best_step = -1;       // of the lowest val_loss so far
  double best_loss = 0;
  std::string config;          // settled_config() of the run
  std::string tokenizer_hash;  // text::Tokenizer::hash()
  std::string corpus_hash;     // text::Corpus::hash
  bool operator==(const RunState&) const = default;
};

/// The config as YAML without what may change between two parts of a run: data.corpus (the text
/// itself is compared), train.threads, train.device, train.deterministic, train.shard_optimizer and
/// the sweep section.
std::string settled_config(const configs::Config& config);

/// As a safetensors file's metadata, and back. "format" is "pt", which Hugging Face's reader wants.
std::map<std::string, std::string> to_metadata(const RunState& state);
/// Absent for a file that no run of ours wrote. Throws InputError naming the file and the field
/// when one is missing or no number.
std::optional<RunState> read_state(const SafetensorsFile& file);

/// The first key in which a run's config and another differ: "train.lr is 0.02 in LEFT and 0.01 in
/// RIGHT"; empty when none does. `whole` false compares only what shapes the model's function: the
/// model section without dropout.
std::string first_difference(const std::string& run_config, const std::string& run_name,
                             const configs::Config& other, const std::string& other_name,
                             bool whole);

}  // namespace headroom::train
