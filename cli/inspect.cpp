// `headroom inspect`: what a run folder or a checkpoint file holds, without loading a model.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/table.h"
#include "configs/count.h"
#include "configs/print.h"
#include "experiments/format.h"
#include "nn/checkpoint.h"
#include "tensor/check.h"
#include "text/tokenizer.h"
#include "train/run_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using configs::human_bytes;
using experiments::format_count;
using nlohmann::ordered_json;

struct InspectOptions {
  std::string argument;
  bool params = false;
};

/// One checkpoint, opened and counted.
struct Checkpoint {
  SafetensorsFile file;
  std::optional<train::RunState> state;
  std::vector<const SafetensorsInfo*> parameters;
  int64_t values = 0;  // numbers in the parameters
  uint64_t parameter_bytes = 0;
  size_t optimizer_tensors = 0;
  uint64_t optimizer_bytes = 0;

  explicit Checkpoint(const fs::path& path) : file(path), state(train::read_state(file)) {
    for (const auto& [name, info] : file.tensors()) {
      if (name.starts_with(nn::kOptimizerPrefix)) {
        ++optimizer_tensors;
        optimizer_bytes += info.end - info.begin;
        continue;
      }
      parameters.push_back(&info);
      values += info.shape.numel();
      parameter_bytes += info.end - info.begin;
    }
  }
};

/// Everything that was found.
struct Contents {
  std::optional<configs::Config> config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::vector<std::unique_ptr<Checkpoint>> checkpoints;
};

Contents open(const std::string& argument, const Common& common) {
  const fs::path path(argument);
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  Contents contents;
  if (!folder) {
    contents.checkpoints.push_back(std::make_unique<Checkpoint>(path));
  }
  // A checkpoint from elsewhere has no config beside it.
  if (folder || fs::exists(path.parent_path() / train::kConfigFile, ignored)) {
    contents.config = load_config_argument(argument, common).config;
  }
  if (folder) {
    contents.tokenizer = text::load_tokenizer(path / train::kTokenizerFile);
    for (const char* name : {train::kLastFile, train::kBestFile}) {
      if (fs::exists(path / name, ignored)) {
        contents.checkpoints.push_back(std::make_unique<Checkpoint>(path / name));
      }
    }
  }
  return contents;
}

/// A tensor as the optimizer sees it: name and shape decide, its values don't.
nn::Parameter as_parameter(const SafetensorsInfo& info) {
  return {info.name, nn::Variable(Tensor::empty(info.shape, info.dtype))};
}

std::string rule_name(const Contents& contents, const nn::Parameter& parameter) {
  if (!contents.config) {
    return "";
  }
  const bool muon = train::rule_of(contents.config->train, parameter) == train::Rule::muon;
  return muon ? "muon" : "adamw";
}

ordered_json checkpoint_json(const Contents& contents, const Checkpoint& checkpoint,
                             const InspectOptions& options) {
  ordered_json json = {{"file", checkpoint.file.path().string()},
                       {"parameters", checkpoint.values},
                       {"parameter_tensors", checkpoint.parameters.size()},
                       {"parameter_bytes", checkpoint.parameter_bytes},
                       {"optimizer_tensors", checkpoint.optimizer_tensors},
                       {"optimizer_bytes", checkpoint.optimizer_bytes},
                       {"metadata", checkpoint.file.metadata()}};
  if (checkpoint.state) {
    json["step"] = checkpoint.state->step;
  }
  for (const SafetensorsInfo* info : checkpoint.parameters) {
    if (options.params) {
      const nn::Parameter parameter = as_parameter(*info);
      json["tensors"].push_back({{"name", info->name},
                                 {"dtype", name_of(info->dtype)},
                                 {"shape", info->shape.dims()},
                                 {"optimizer", rule_name(contents, parameter)},
                                 {"decay", train::decays(parameter)}});
    }
  }
  return json;
}

ordered_json to_json(const Contents& contents, const InspectOptions& options) {
  ordered_json json;
  if (contents.config) {
    json["config"] = configs::to_json(*contents.config);
  }
  if (contents.tokenizer) {
    json["tokenizer"] = {{"kind", contents.tokenizer->kind()},
                         {"vocab_size", contents.tokenizer->vocab_size()},
                         {"hash", contents.tokenizer->hash()}};
  }
  json["checkpoints"] = ordered_json::array();
  for (const auto& checkpoint : contents.checkpoints) {
    json["checkpoints"].push_back(checkpoint_json(contents, *checkpoint, options));
  }
  return json;
}

std::string config_line(const configs::Config& config) {
  const auto& [m, d, t, s] = config;
  return fmt::format(
      "config       {} layers, {} wide, {}, context {}; {} at "
      "{}, batch {} * {}, {} steps, seed {}\n",
      m.n_layer, m.n_embd, attention_in_words(m), m.block_size, configs::name_of(t.optimizer), t.lr,
      t.batch_size, t.grad_accumulation, t.steps, t.seed);
}

std::string state_lines(const train::RunState& state) {
  const auto loss_at = [](int64_t step, double loss) {
    return step < 0
               ? std::string("not evaluated yet")
               : fmt::format("{} nats per token at step {}", experiments::format_loss(loss), step);
  };
  return aligned({{"step", fmt::format("{}", state.step)},
                  {"last val loss", loss_at(state.evaluated_step, state.val_loss)},
                  {"best val loss", loss_at(state.best_step, state.best_loss)},
                  {"sequences read", fmt::format("{}", state.sequences)},
                  {"tokenizer", state.tokenizer_hash},
                  {"corpus", state.corpus_hash}},
                 2, 2);
}

std::string metadata_lines(const std::map<std::string, std::string>& metadata) {
  std::vector<Row> rows;
  rows.reserve(metadata.size());
  for (const auto& [key, value] : metadata) {
    rows.push_back({key, value});
  }
  return aligned(rows, 2, 2);
}

std::string parameter_table(const Contents& contents, const Checkpoint& checkpoint) {
  std::vector<Row> rows = {{"parameter", "type", "shape", "optimizer", "decay"}};
  for (const SafetensorsInfo* info : checkpoint.parameters) {
    const nn::Parameter parameter = as_parameter(*info);
    rows.push_back({info->name, std::string(name_of(info->dtype)), to_string(info->shape),
                    rule_name(contents, parameter), train::decays(parameter) ? "yes" : "no"});
  }
  return aligned(rows, 5);
}

std::string to_text(const Contents& contents, const InspectOptions& options) {
  std::string text;
  if (contents.config) {
    text += config_line(*contents.config);
  }
  if (contents.tokenizer) {
    text += fmt::format("tokenizer    {}, {} tokens, {}\n", contents.tokenizer->kind(),
                        contents.tokenizer->vocab_size(), contents.tokenizer->hash());
  }
  if (contents.checkpoints.empty()) {
    text += "no checkpoint has been saved yet\n";
  }
  for (const auto& each : contents.checkpoints) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", each->file.path().string());
    text += each->state ? state_lines(*each->state) : metadata_lines(each->file.metadata());
    text += fmt::format(
        "  {} parameters in {} tensors, {}; optimizer: {}\n", format_count(each->values),
        each->parameters.size(), human_bytes(static_cast<int64_t>(each->parameter_bytes)),
        each->optimizer_tensors == 0
            ? "none, so training can't be resumed from it"
            : fmt::format("{} tensors, {}", each->optimizer_tensors,
                          human_bytes(static_cast<int64_t>(each->optimizer_bytes))));
  }
  // The checkpoints of a run hold the same tensors.
  if (options.params && !contents.checkpoints.empty()) {
    text += '\n' + parameter_table(contents, *contents.checkpoints.front());
  }
  return text;
}

}  // namespace

Action add_inspect(CLI::App& app, Common& common) {
  const auto options = std::make_shared<InspectOptions>();
  app.add_option("RUN", options->argument, "a run folder or a .safetensors file")->required();
  app.add_flag("--params", options->params,
               "list the parameters: type, shape, which optimizer steps each, whether it decays");
  set_footer(app, "  headroom inspect runs/first --params");
  return [options, &common] {
    const Contents contents = open(options->argument, common);
    if (common.json) {
      print_json(to_json(contents, *options));
    } else {
      print(to_text(contents, *options));
    }
    return 0;
  };
}

}  // namespace headroom::cli
