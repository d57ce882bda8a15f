// Checkpoints with their state, and whether the parts of a run belong together.
#include "train/run_folder.h"

#include <algorithm>

#include "configs/count.h"
#include "configs/load.h"
#include "nn/checkpoint.h"
#include "tensor/check.h"
#include "train/device.h"
#include "train/step.h"

namespace headroom::train {

namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::optional<RunState> state_in(const fs::path& path) { return read_state(SafetensorsFile(path)); }

/// Whether best.safetensors is the one that `last` speaks of.
enum class Best { none, good, behind };
Best best_of(const fs::path& folder, const RunState& last) {
  const fs::path path = folder / kBestFile;
  if (last.best_step < 0) {
    return Best::none;
  }
  const bool killed_between = last.best_step == last.step;
  if (!is_there(path)) {
    check_input(killed_between, "{}: missing, but {} (step {}) says that step {} was the best",
                path.string(), kLastFile, last.step, last.best_step);
    return Best::behind;
  }
  const std::optional<RunState> best = state_in(path);
  const bool same_run = best && best->config == last.config &&
                        best->tokenizer_hash == last.tokenizer_hash &&
                        best->corpus_hash == last.corpus_hash;
  check_input(same_run, "{}: does not belong to the run that {} is of", path.string(), kLastFile);
  if (best->step == last.best_step) {
    return Best::good;
  }
  check_input(killed_between && best->step < last.step,
              "{}: is of step {}, but {} (step {}) says that step {} was the best: one of them is "
              "from another time",
              path.string(), best->step, kLastFile, last.step, last.best_step);
  return Best::behind;
}

/// The checkpoint to read a folder's model from.
fs::path best_checkpoint(const fs::path& folder) {
  fs::path best = folder / kBestFile;
  const fs::path last = folder / kLastFile;
  check_input(is_there(best) || is_there(last),
              "{}: holds neither {} nor {}: nothing has been saved", folder.string(), kBestFile,
              kLastFile);
  if (!is_there(last)) {
    return best;  // a model handed on without what training needs
  }
  const std::optional<RunState> state = state_in(last);
  if (!state) {
    return is_there(best) ? best : last;
  }
  return best_of(folder, *state) == Best::good ? best : last;
}

void require_finite(const nn::GPT& model, const fs::path& path) {
  const std::string bad = nn::first_non_finite(model);
  check_input(bad.empty(), "{}: {} holds a NaN or an infinity: these weights are of no use",
              path.string(), bad);
}

}  // namespace

bool holds_run(const fs::path& folder) {
  for (const char* name : {kConfigFile, kTokenizerFile, kLastFile, kBestFile, kMetricsFile}) {
    if (is_there(folder / name)) {
      return true;
    }
  }
  return false;
}

void save_checkpoint(const fs::path& path, const nn::GPT& model, const NamedTensors& optimizer,
                     const RunState& state) {
  const std::string bad = nn::first_non_finite(model);
  if (!bad.empty()) {
    throw NotFinite(fmt::format(
        "[train] {} holds a NaN or an infinity after step {}: nothing is saved", bad, state.step));
  }
  auto tensors = nn::parameter_tensors(model);
  std::ranges::copy(optimizer, std::back_inserter(tensors));
  write_safetensors(path, tensors, to_metadata(state));
}

int64_t checkpoint_bytes(const nn::GPT& model, const Optimizer& optimizer) {
  int64_t bytes = optimizer.whole_bytes();
  for (const auto& [name, tensor] : nn::parameter_tensors(model)) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

void require_disk(const fs::path& folder, int64_t bytes, uint64_t available) {
  int64_t files = 1;
  for (const char* name : {kLastFile, kBestFile}) {
    files += is_there(folder / name) ? 0 : 1;
  }
  check_input(
      available >= static_cast<uint64_t>(files * bytes),
      "{}: {} are free, but a checkpoint needs {} and there must be room for {}: best, last "
      "and the one being written",
      folder.string(), configs::human_bytes(static_cast<int64_t>(available)),
      configs::human_bytes(bytes), files);
}

std::optional<RunState> read_resume_state(const fs::path& folder, const configs::Config& config) {
  const fs::path last = folder / kLastFile;
  if (!is_there(last)) {
    check_input(!is_there(folder / kBestFile), "{}: missing, though {} is there", last.string(),
                kBestFile);
    return std::nullopt;
  }
  std::optional<RunState> state = state_in(last);
  check_input(state.has_value(),
              "{}: no run of headroom wrote it, so there is no step to go on from; training "
              "without --resume, with another --out, starts afresh",
              last.string());
  const std::string stored = (folder / kConfigFile).string();
  const std::string mixed =
      first_difference(state->config, last.string(), configs::load_config(stored), stored, true);
  check_input(mixed.empty(), "{}: does not belong to {}: {}", stored, kLastFile, mixed);
  const std::string changed =
      first_difference(state->config, "the run", config, "the config given", true);
  check_input(changed.empty(),
              "{}: a run is continued with the config it began with, but {}; with another --out "
              "the new config starts afresh",
              folder.string(), changed);
  check_input(
      state->sequences == state->step * config.train.batch_size * config.train.grad_accumulation,
      "{}: its step {} and its {} sequences don't go together", last.string(), state->step,
      state->sequences);
  best_of(folder, *state);
  return state;
}

void load_checkpoint(const fs::path& folder, nn::GPT& model, Optimizer& optimizer,
                     std::vector<std::string>& notes) {
  const SafetensorsFile file(folder / kLastFile);
  const auto state = optimizer.state();
  const auto stored = std::ranges::count_if(
      file.tensors(), [](const auto& t) { return t.first.starts_with(nn::kOptimizerPrefix); });
  check_input(stored > 0,
              "{}: holds weights only, and a run can't be continued without its optimizer; "
              "training without --resume, with another --out, starts afresh",
              file.path().string());
  nn::load_parameters(model, file, notes);
  require_finite(model, file.path());
  for (auto [name, tensor] : state) {
    check_input(file.has(name), "{}: {} is missing", file.path().string(), name);
    const Tensor value = file.read(name);
    check_input(value.shape() == tensor.shape() && value.dtype() == tensor.dtype(),
                "{}: {} is {} {}, the optimizer needs {} {}", file.path().string(), name,
                name_of(value.dtype()), to_string(value.shape()), name_of(tensor.dtype()),
                to_string(tensor.shape()));
    tensor.copy_from(value);
  }
  check_input(stored == optimizer.whole_tensors(),
              "{}: holds {} tensors of an optimizer, this one has {}", file.path().string(), stored,
              optimizer.whole_tensors());
}

std::unique_ptr<text::Tokenizer> load_run_tokenizer(const fs::path& folder,
                                                    const std::optional<RunState>& state) {
  const fs::path path = folder / kTokenizerFile;
  auto tokenizer = text::load_tokenizer(path);
  check_input(!state || tokenizer->hash() == state->tokenizer_hash,
              "{}: is not the tokenizer that the checkpoint was trained with (its hash is {}, the "
              "checkpoint's {})",
              path.string(), tokenizer->hash(), state ? state->tokenizer_hash : "");
  return tokenizer;
}

void repair_best(const fs::path& folder, const nn::GPT& model, const NamedTensors& optimizer,
                 const RunState& state) {
  if (best_of(folder, state) == Best::behind) {
    save_checkpoint(folder / kBestFile, model, optimizer, state);
  }
}

int64_t model_vocabulary(const configs::ModelConfig& model, const text::Tokenizer& tokenizer) {
  check_input(model.vocab_size == 0 || model.vocab_size >= tokenizer.vocab_size(),
              "model.vocab_size is {}, but the tokenizer has {} tokens: it must be 0 or at least "
              "that",
              model.vocab_size, tokenizer.vocab_size());
  return model.vocab_size != 0 ? model.vocab_size : tokenizer.vocab_size();
}

LoadedRun load_run(const fs::path& run, std::span<const std::string> overrides,
                   std::optional<Device> device) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(run, ignored);
  check_input(is_folder || is_there(run), "{}: no such run folder or checkpoint", run.string());
  const fs::path folder = is_folder ? run : run.parent_path();
  LoadedRun loaded;
  loaded.config = configs::load_run_config(run, overrides, &loaded.notes);
  const Device there = choose_device(device, loaded.config.train);
  loaded.checkpoint = is_folder ? best_checkpoint(folder) : run;
  const SafetensorsFile file(loaded.checkpoint);
  loaded.state = read_state(file);
  if (loaded.state) {
    const std::string stored = (folder / kConfigFile).string();
    const std::string mixed = first_difference(loaded.state->config, loaded.checkpoint.string(),
                                               configs::load_run_config(run), stored, false);
    check_input(mixed.empty(), "{}: does not belong to the checkpoint: {}", stored, mixed);
  }
  loaded.tokenizer = load_run_tokenizer(folder, loaded.state);
  const nn::Scope scope{.device = there, .draw = false};
  loaded.model = std::make_unique<nn::GPT>(
      loaded.config.model, model_vocabulary(loaded.config.model, *loaded.tokenizer), scope);
  nn::load_parameters(*loaded.model, file, loaded.notes);
  require_finite(*loaded.model, loaded.checkpoint);
  return loaded;
}

}  // namespace headroom::train
