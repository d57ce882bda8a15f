// A run's state as metadata of its checkpoint, and back.
#include "train/run_state.h"

#include <cstdlib>

#include "configs/load.h"
#include "configs/print.h"
#include "tensor/check.h"

namespace headroom::train {

namespace {

constexpr const char* kFormat = "headroom_run";
constexpr const char* kVersion = "1";

configs::Config settled(configs::Config config) {
  config.data.corpus.clear();
  config.train.threads = 0;
  config.train.device = configs::DeviceKind::cpu;
  config.train.deterministic = true;
  config.train.shard_optimizer = false;
  config.sweep = {};
  return config;
}

/// Reads the fields of a file's metadata one by one.
class Fields {
 public:
  explicit Fields(const SafetensorsFile& file) : file_(file) {}

  std::string text(const char* key) const {
    const auto found = file_.metadata().find(key);
    check_input(found != file_.metadata().end(), "{}: its metadata lacks {}", file_.path().string(),
                key);
    return found->second;
  }
  double number(const char* key) const {
    const std::string value = text(key);
    char* end = nullptr;
    const double result = std::strtod(value.c_str(), &end);
    check_input(!value.empty() && *end == '\0', "{}: {} in its metadata must be a number: got {}",
                file_.path().string(), key, value);
    return result;
  }
  int64_t whole(const char* key) const {
    const double value = number(key);
    check_input(value >= -1 && value <= 9007199254740992.0 &&
                    value == static_cast<double>(static_cast<int64_t>(value)),
                "{}: {} in its metadata must be a whole number: got {}", file_.path().string(), key,
                value);
    return static_cast<int64_t>(value);
  }

 private:
  const SafetensorsFile& file_;
};

}  // namespace

std::string settled_config(const configs::Config& config) {
  return configs::to_yaml(settled(config));
}

std::map<std::string, std::string> to_metadata(const RunState& state) {
  return {{"format", "pt"},
          {kFormat, kVersion},
          {"step", fmt::format("{}", state.step)},
          {"sequences", fmt::format("{}", state.sequences)},
          {"evaluated_step", fmt::format("{}", state.evaluated_step)},
          {"val_loss", fmt::format("{}", state.val_loss)},
          {"best_step", fmt::format("{}", state.best_step)},
          {"best_loss", fmt::format("{}", state.best_loss)},
          {"config", state.config},
          {"tokenizer", state.tokenizer_hash},
          {"corpus", state.corpus_hash}};
}

std::optional<RunState> read_state(const SafetensorsFile& file) {
  if (!file.metadata().contains(kFormat)) {
    return std::nullopt;
  }
  const Fields fields(file);
  check_input(fields.text(kFormat) == kVersion, "{}: written in format {}; this program reads {}",
              file.path().string(), fields.text(kFormat), kVersion);
  return RunState{.step = fields.whole("step"),
                  .sequences = fields.whole("sequences"),
                  .evaluated_step = fields.whole("evaluated_step"),
                  .val_loss = fields.number("val_loss"),
                  .best_step = fields.whole("best_step"),
                  .best_loss = fields.number("best_loss"),
                  .config = fields.text("config"),
                  .tokenizer_hash = fields.text("tokenizer"),
                  .corpus_hash = fields.text("corpus")};
}

std::string first_difference(const std::string& run_config, const std::string& run_name,
                             const configs::Config& other, const std::string& other_name,
                             bool whole) {
  const configs::Config run = configs::parse_config(run_config, run_name);
  for (const configs::Difference& d : configs::differences(run, settled(other))) {
    const bool shapes_the_model = d.key.starts_with("model.") && d.key != "model.dropout";
    if (whole || shapes_the_model) {
      return fmt::format("{} is {} in {} and {} in {}", d.key, d.left, run_name, d.right,
                         other_name);
    }
  }
  return {};
}

}  // namespace headroom::train
