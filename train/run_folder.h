// A run on disk: config.yaml, tokenizer.json, last.safetensors, best.safetensors, metrics.jsonl.
// At a new best step both checkpoints hold the same; last is written first, so that a kill between
// the two leaves a best that is older than last says, and last can stand in for it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/gpt.h"
#include "text/tokenizer.h"
#include "train/optimizer.h"
#include "train/run_state.h"

namespace headroom::train {

inline constexpr const char* kConfigFile = "config.yaml";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kLastFile = "last.safetensors";
inline constexpr const char* kBestFile = "best.safetensors";
inline constexpr const char* kMetricsFile = "metrics.jsonl";

/// Whether the folder holds any part of a run.
bool holds_run(const std::filesystem::path& folder);

/// Weights, optimizer and state, in one file replaced whole. Throws NotFinite (train/step.h) and
/// leaves the file as it was when a weight is no number.
void save_checkpoint(const std::filesystem::path& path, const nn::GPT& model,
                     const NamedTensors& optimizer, const RunState& state);
/// Bytes of tensors in one checkpoint.
int64_t checkpoint_bytes(const nn::GPT& model, const Optimizer& optimizer);

/// Throws InputError when `available` bytes can't hold what a run writes into the folder: best,
/// last, and the checkpoint being written beside them.
void require_disk(const std::filesystem::path& folder, int64_t bytes, uint64_t available);

/// The state of a folder's last checkpoint, for continuing the run with `config`. Absent when
/// nothing has been saved. Throws InputError naming the part when one is missing, damaged or of
/// another run or step, and naming the first key when `config` is not the run's.
std::optional<RunState> read_resume_state(const std::filesystem::path& folder,
                                          const configs::Config& config);
/// Weights of last.safetensors, and of its optimizer what this worker keeps. Throws InputError for
/// a file without optimizer and for weights that are not finite, naming the tensor.
void load_checkpoint(const std::filesystem::path& folder, nn::GPT& model, Optimizer& optimizer,
                     std::vector<std::string>& notes);
/// The folder's tokenizer. Throws InputError when it is not the one of `state`.
std::unique_ptr<text::Tokenizer> load_run_tokenizer(const std::filesystem::path& folder,
                                                    const std::optional<RunState>& state);
/// Brings best.safetensors up to what last.safetensors says, where a kill came between the two.
void repair_best(const std::filesystem::path& folder, const nn::GPT& model,
                 const NamedTensors& optimizer, const RunState& state);

/// Rows of the model's embedding: model.vocab_size where given, else the tokenizer's. Throws
/// InputError when the tokenizer has more tokens.
int64_t model_vocabulary(const configs::ModelConfig& model, const text::Tokenizer& tokenizer);

/// A trained model and what belongs to it.
struct LoadedRun {
  configs::Config config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<nn::GPT> model;
  std::filesystem::path checkpoint;  // the file its weights are from
  std::optional<RunState> state;     // absent for weights that no run of ours wrote
  std::vector<std::string> notes;    // what the user should be told, one sentence each
};

/// Loads a run for reading: `run` is its folder, then the weights are best.safetensors (or last,
/// before the first evaluation), or a checkpoint in it. `overrides` are for the config; the model
/// is on `device` (choose_device). Throws InputError naming the part when parts are missing,
/// damaged or do not belong together, for weights that are not finite, and before any of that for a
/// device that isn't there.
LoadedRun load_run(const std::filesystem::path& run, std::span<const std::string> overrides = {},
                   std::optional<Device> device = std::nullopt);

}  // namespace headroom::train
