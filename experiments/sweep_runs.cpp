// Planning a sweep's runs, reading finished ones and drawing samples.
#include "experiments/sweep_runs.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "configs/memory.h"
#include "configs/print.h"
#include "configs/size.h"
#include "configs/variants.h"
#include "experiments/machine.h"
#include "infer/engine.h"
#include "kernels/threads.h"
#include "tensor/file.h"
#include "text/utf8.h"
#include "train/precision.h"
#include "train/run_folder.h"

namespace headroom::experiments {

namespace {

constexpr int64_t kSampleTokens = 300;
constexpr uint64_t kSampleSeed = 1;
constexpr double kSampleTemperature = 0.8;

/// A row of the sweep's n_kv_head.
Row make_row(const configs::Config& variant, int64_t vocab_size) {
  const configs::ModelConfig& model = variant.model;
  Row row;
  row.name = fmt::format("kv{}", model.n_kv_head);
  row.n_kv_head = model.n_kv_head;
  row.attention = model.mla()                       ? "mla"
                  : model.n_kv_head == model.n_head ? "mha"
                  : model.n_kv_head == 1            ? "mqa"
                                                    : "gqa";
  row.n_layer = model.n_layer;
  row.n_ff = model.n_ff();
  row.params = configs::parameter_count(model, vocab_size);
  row.attention_params_per_layer = configs::attention_parameters_per_layer(model);
  row.cache_bytes_per_token = configs::mean_cache_bytes_per_token(model, configs::KVTypes());
  row.tokens = variant.train.steps * configs::tokens_per_step(variant);
  return row;
}

/// A line break where the tokenizer has one, since what follows it begins a line; else the first
/// character of the validation part.
std::string sample_prompt(const text::Corpus& corpus, const text::Tokenizer& tokenizer) {
  if (tokenizer.encodable_prefix("\n") == 1) {
    return "\n";
  }
  const std::string_view part = corpus.split(text::Split::val);
  return std::string(part.substr(0, std::max<size_t>(1, text::decode_char(part, 0).length)));
}

}  // namespace

Plan plan_sweep(const configs::Config& config, Device device) {
  check_input(!config.data.corpus.empty(), "data.corpus must name the text file to train on");
  const text::Corpus corpus = text::load_corpus(config.data.corpus, config.data.val_fraction);
  std::vector<std::string> notes;  // each run repeats them
  const auto tokenizer =
      text::make_tokenizer(configs::name_of(config.data.tokenizer), config.data.vocab_size,
                           corpus.split(text::Split::train), notes);
  text::tokenize_splits(corpus, *tokenizer, config.model.block_size);
  const int64_t vocab_size = train::model_vocabulary(config.model, *tokenizer);
  const auto precision =
      train::choose_precision(config.train.precision, device, kernels::has_native_bf16());

  Plan plan;
  plan.variants = configs::variants(config, vocab_size);
  for (const configs::Config& variant : plan.variants) {
    plan.sweep.rows.push_back(make_row(variant, vocab_size));
  }
  for (const configs::Relief relief : config.sweep.also) {
    plan.variants.push_back(configs::relief_variant(config, relief, vocab_size));
    Row row = make_row(plan.variants.back(), vocab_size);
    row.name = row.attention = configs::name_of(relief);
    plan.sweep.rows.push_back(std::move(row));
  }
  for (size_t i = 0; i < plan.variants.size(); ++i) {
    configs::require_training_memory(plan.variants[i], vocab_size,
                                     static_cast<int64_t>(size_of(precision.dtype)),
                                     configs::available_memory(device));
    plan.flop.push_back(
        configs::step_flop(plan.variants[i].model, vocab_size, plan.sweep.rows[i].tokens));
  }
  plan.corpus_hash = corpus.hash;
  plan.prompt = sample_prompt(corpus, *tokenizer);
  plan.sweep.fair = configs::name_of(config.sweep.fair);
  plan.sweep.corpus = corpus.name;
  plan.sweep.tiny_shakespeare = corpus.is_tiny_shakespeare();
  plan.sweep.tokenizer = tokenizer->kind() == "bpe"
                             ? fmt::format("bpe, {} tokens", tokenizer->vocab_size())
                             : std::string(tokenizer->kind());
  plan.sweep.seeds.assign(config.sweep.seeds.begin(), config.sweep.seeds.end());
  plan.sweep.sample_note = sample_note(plan.prompt);
  plan.sweep.config_yaml = configs::to_yaml(config);
  if (config.train.threads != 0) {
    kernels::set_threads(static_cast<int>(config.train.threads));  // as each run will
  }
  plan.sweep.machine = this_machine();
  plan.sweep.machine.device = name_of(device);
  plan.sweep.machine.precision = precision.dtype == DType::bf16 ? "bf16" : "fp32";
  return plan;
}

configs::Config run_config(const configs::Config& variant, int64_t seed) {
  configs::Config config = variant;
  config.train.seed = seed;
  return config;
}

double later_seconds(double later_flop, const Work& done, const Work& current) {
  const double flop = done.flop + current.flop;
  return flop > 0 ? later_flop * (done.seconds + current.seconds) / flop : 0.0;
}

RunLog read_log(const std::filesystem::path& folder, int64_t tokens_per_step) {
  RunLog log;
  const std::filesystem::path path = folder / train::kMetricsFile;
  std::istringstream lines(std::filesystem::exists(path) ? read_file(path) : std::string());
  for (std::string text; std::getline(lines, text);) {
    const auto line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("step")) {
      continue;  // a kill may have cut the last line
    }
    const int64_t step = line.at("step");
    log.tokens = step * tokens_per_step;
    log.seconds = line.value("seconds", log.seconds);
    if (line.contains("val_loss")) {
      log.curve.push_back({step, log.tokens, line.at("val_loss")});
    }
  }
  return log;
}

SeedRun read_run(const std::filesystem::path& folder, int64_t seed,
                 const train::TrainResult& result, int64_t tokens_per_step) {
  RunLog log = read_log(folder, tokens_per_step);
  return {.seed = static_cast<uint64_t>(seed),
          .best_loss = result.best_loss,
          .best_step = result.best_step,
          .final_loss = result.final_loss,
          .seconds = log.seconds,
          .tokens = result.tokens,
          .curve = std::move(log.curve)};
}

SeedRun read_diverged_run(const std::filesystem::path& folder, int64_t seed,
                          int64_t tokens_per_step) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  RunLog log = read_log(folder, tokens_per_step);
  SeedRun run{.seed = static_cast<uint64_t>(seed),
              .best_loss = kNone,
              .final_loss = kNone,
              .seconds = log.seconds,
              .tokens = log.tokens,
              .curve = std::move(log.curve)};
  const auto best = std::ranges::min_element(run.curve, {}, &LossPoint::val_loss);
  if (best != run.curve.end()) {
    run.best_loss = best->val_loss;
    run.best_step = best->step;
  }
  return run;
}

std::string draw_sample(const std::filesystem::path& folder, const std::string& prompt,
                        Device device) {
  const train::LoadedRun run = train::load_run(folder, {}, device);
  const std::vector<int32_t> ids = run.tokenizer->encode(prompt);
  infer::GenerateOptions options;
  options.tokens = kSampleTokens;
  if (run.config.model.position == configs::Position::learned) {
    options.tokens = std::max<int64_t>(
        0, std::min(kSampleTokens, run.config.model.block_size - static_cast<int64_t>(ids.size())));
  }
  options.sampling.temperature = kSampleTemperature;
  options.sampling.seed = kSampleSeed;
  const auto generated =
      infer::generate(*run.model, {ids}, options, [](int64_t, int32_t) { return true; });
  return text::to_valid_utf8(run.tokenizer->decode(generated.tokens[0]));
}

std::string sample_note(const std::string& prompt) {
  return fmt::format("up to {} tokens after {}, temperature {}, seed {}", kSampleTokens,
                     prompt == "\n" ? std::string("a line break") : fmt::format("'{}'", prompt),
                     kSampleTemperature, kSampleSeed);
}

}  // namespace headroom::experiments
