// A trained model with text it has learned from and text it hasn't, for the exhibits that ask what
// a change to the cache does to its loss.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/exhibit.h"
#include "experiments/passages.h"
#include "train/run_folder.h"

namespace headroom::experiments {

struct TrainedModelOptions {
  std::vector<std::string> overrides;  // of the run's config
  std::filesystem::path corpus;        // empty: the run's data.corpus
  int64_t passages = 32;               // at most, of held-out text
  int64_t context = 0;                 // tokens of each; 0: block_size
  std::optional<Device> device = {};   // the model's; absent: the run's train.device
};

struct TrainedModel {
  train::LoadedRun run;
  std::string corpus;  // its name
  Passages training;   // four times as many as of held-out text: directions are fitted on them
  Passages held_out;
  std::vector<std::string> notes;  // what the user should be told, one sentence each

  const nn::GPT& model() const { return *run.model; }
};

/// Loads a run for an exhibit. Throws InputError for what is no run, for a context that learned
/// positions don't reach, for passages that the memory can't hold in a cache, and for a text
/// without a passage.
TrainedModel load_trained_model(const std::filesystem::path& run,
                                const TrainedModelOptions& options);

/// A finished run of the study's sweep, with fewer passages in a quick study.
TrainedModel load_member(const Study& study, const std::string& row, uint64_t seed);
/// The first run of its multi-head row.
TrainedModel load_reference(const Study& study);

/// "Ours: 4 layers, 128 wide, 8 query heads of 16 over 8 KV heads, rope, trained on Tiny
/// Shakespeare (char) in sequences of 128; 32 passages of 128 tokens of its validation text."
std::string setting_of(const TrainedModel& trained);

/// What every exhibit with figures from GPT-2 begins its explanation with.
std::string model_differs(const TrainedModel& trained);

/// The note of a single such figure.
inline constexpr const char* kOnGpt2 = "the model differs: published on GPT-2, on other text";

}  // namespace headroom::experiments
