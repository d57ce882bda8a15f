// CONFIG, RUN and PRESET arguments: which file or preset is meant, and its vocabulary.
#include "cli/common.h"
#include "cli/presets.h"
#include "cli/usage.h"
#include "configs/load.h"
#include "tensor/check.h"
#include "text/char_tokenizer.h"
#include "text/corpus.h"
#include "train/run_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    names.emplace_back(preset.name);
  }
  return names;
}

/// The preset of that name ("gqa", "configs/gqa.yaml"), or null.
const Preset* find_preset(const fs::path& path) {
  const fs::path parent = path.parent_path();
  const bool by_path = parent == "configs" && path.extension() == ".yaml";
  for (const Preset& preset : presets()) {
    if (preset.name == path.string() || (by_path && preset.name == path.stem().string())) {
      return &preset;
    }
  }
  return nullptr;
}

bool is_run(const fs::path& path) {
  std::error_code ignored;
  const bool holds_config = fs::is_directory(path, ignored) && fs::exists(path / "config.yaml");
  return holds_config || path.extension() == ".safetensors";
}

/// "first" of "runs/first/", and of "." there.
std::string folder_name(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

ConfigArgument read_config_argument(const std::string& argument, const Common& common) {
  const fs::path path(argument);
  std::error_code ignored;
  ConfigArgument result;
  std::vector<std::string>& notes = result.notes;
  const Preset* preset = find_preset(path);
  const bool is_folder = fs::is_directory(path, ignored);
  if (is_run(path)) {
    result.config = configs::load_run_config(path, common.overrides, &notes);
    result.run = is_folder ? path : path.parent_path();
    result.name = folder_name(result.run);
  } else if (preset != nullptr && (is_folder || !fs::exists(path, ignored))) {
    result.config = configs::parse_config(preset->yaml, fmt::format("preset {}", preset->name),
                                          common.overrides, &notes);
    result.name = preset->name;
  } else {
    check_input(!is_folder, "{}: is a folder without a config.yaml: neither a config nor a run",
                argument);
    check_input(argument.find_first_of("./") != std::string::npos || fs::exists(path, ignored),
                "{}: no such config file, run or preset ({}){}", argument,
                fmt::join(preset_names(), ", "), did_you_mean(argument, preset_names()));
    result.config = configs::load_config(path, common.overrides, &notes);
    result.name = path.stem().string();
  }
  return result;
}

ConfigArgument load_config_argument(const std::string& argument, const Common& common) {
  ConfigArgument result = read_config_argument(argument, common);
  for (const std::string& each : result.notes) {
    note(common, each);
  }
  return result;
}

std::optional<int64_t> find_vocabulary(const ConfigArgument& argument) {
  const auto& [model, data, train, sweep] = argument.config;
  if (model.vocab_size != 0) {
    return model.vocab_size;
  }
  if (!argument.run.empty()) {
    return text::load_tokenizer(argument.run / train::kTokenizerFile)->vocab_size();
  }
  if (data.tokenizer == configs::TokenizerKind::byte) {
    return 256;
  }
  if (data.tokenizer == configs::TokenizerKind::bpe) {
    return data.vocab_size;
  }
  std::error_code ignored;
  if (!fs::is_regular_file(data.corpus, ignored)) {
    return std::nullopt;
  }
  const text::Corpus corpus = text::load_corpus(data.corpus, data.val_fraction);
  return text::CharTokenizer::from_text(corpus.split(text::Split::train))->vocab_size();
}

}  // namespace headroom::cli
