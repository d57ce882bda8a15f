// Pooling a run, and writing the result as a run of its own.
#include "experiments/convert.h"

#include <algorithm>
#include <cmath>

#include "configs/print.h"
#include "configs/rules.h"
#include "kernels/threads.h"
#include "nn/pool_heads.h"
#include "tensor/file.h"
#include "train/evaluate.h"
#include "train/precision.h"

namespace headroom::experiments {

namespace fs = std::filesystem;

namespace {

void check_heads(const fs::path& run, const configs::ModelConfig& model, int64_t n_kv_head) {
  check_input(!model.mla(),
              "{}: its model.attention is mla, whose latent serves every head: it has no KV heads "
              "to pool",
              run.string());
  check_input(n_kv_head < model.n_kv_head && model.n_kv_head % n_kv_head == 0,
              "--n-kv-head is {} and the model of {} has {} KV heads, but it must be smaller and "
              "divide them",
              n_kv_head, run.string(), model.n_kv_head);
}

configs::Config pooled_config(const configs::Config& original, int64_t n_kv_head,
                              std::optional<int64_t> steps) {
  configs::Config config = original;
  configs::TrainConfig& train = config.train;
  config.model.n_kv_head = n_kv_head;
  const auto before = static_cast<double>(std::max<int64_t>(1, train.steps));
  const auto rounded = [](double x) { return static_cast<int64_t>(std::llround(x)); };
  train.steps = steps.value_or(std::max<int64_t>(1, rounded(before * kUptrainingShare)));
  const double shorter = std::min(1.0, static_cast<double>(train.steps) / before);
  train.warmup_steps = rounded(static_cast<double>(train.warmup_steps) * shorter);
  configs::check_config(config);
  return config;
}

}  // namespace

PooledRun pool_run(const fs::path& run, int64_t n_kv_head, std::optional<int64_t> steps,
                   std::span<const std::string> overrides, std::optional<Device> device) {
  PooledRun pooled;
  pooled.original = train::load_run(run, overrides, device);
  const train::LoadedRun& original = pooled.original;
  const configs::Config& config = original.config;
  check_heads(run, config.model, n_kv_head);
  pooled.config = pooled_config(config, n_kv_head, steps);
  const text::Corpus corpus = text::load_corpus(config.data.corpus, config.data.val_fraction);
  check_input(!original.state || original.state->corpus_hash == corpus.hash,
              "{}: is not the text that {} was trained on", config.data.corpus, run.string());
  pooled.corpus_hash = corpus.hash;
  pooled.model =
      std::make_unique<nn::GPT>(pooled.config.model, original.model->vocab_size(),
                                nn::Scope{.device = original.model->device(), .draw = false});
  nn::pool_kv_heads(*original.model, *pooled.model);
  const text::Tokens tokens = text::tokenize(corpus, text::Split::val, *original.tokenizer);
  const auto loss = [&](const nn::GPT& model) {
    return train::evaluate(model, tokens, *original.tokenizer,
                           {.batch_size = config.train.batch_size})
        .loss_nats;
  };
  pooled.original_loss = loss(*original.model);
  pooled.pooled_loss = loss(*pooled.model);
  return pooled;
}

void require_new_folder(const fs::path& folder) {
  std::error_code ignored;
  const bool there = fs::exists(folder, ignored);
  check_input(!there || fs::is_directory(folder, ignored),
              "{}: can't be the run folder: it is not a directory", folder.string());
  check_input(!there || fs::is_empty(folder, ignored),
              "{}: is not empty; the converted run wants a folder of its own", folder.string());
}

void write_pooled_run(const PooledRun& pooled, const fs::path& folder) {
  const auto precision = train::choose_precision(
      pooled.config.train.precision, pooled.model->device(), kernels::has_native_bf16());
  const train::Optimizer optimizer(pooled.config.train, pooled.model->parameters(),
                                   precision.dtype);
  const train::RunState state{.step = 0,
                              .sequences = 0,
                              .evaluated_step = 0,
                              .val_loss = pooled.pooled_loss,
                              .best_step = 0,
                              .best_loss = pooled.pooled_loss,
                              .config = train::settled_config(pooled.config),
                              .tokenizer_hash = pooled.original.tokenizer->hash(),
                              .corpus_hash = pooled.corpus_hash};
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "{}: can't be made: {}", folder.string(), error.message());
  for (const char* name : {train::kLastFile, train::kBestFile}) {
    train::save_checkpoint(folder / name, *pooled.model, optimizer.state(), state);
  }
  pooled.original.tokenizer->save(folder / train::kTokenizerFile);
  write_file(folder / train::kConfigFile, configs::to_yaml(pooled.config));
}

}  // namespace headroom::experiments
