// Pooling, uptraining, and the losses of all four models.
#include "experiments/uptrain.h"

#include "configs/load.h"
#include "experiments/convert.h"
#include "train/trainer.h"

namespace headroom::experiments {

namespace fs = std::filesystem;

namespace {

/// The lowest validation loss of a finished run; absent where there is none.
std::optional<double> best_loss_of(const fs::path& run) {
  std::error_code ignored;
  const fs::path last = run / train::kLastFile;
  if (!fs::exists(last, ignored)) {
    return std::nullopt;
  }
  const std::optional<train::RunState> state = train::read_state(SafetensorsFile(last));
  const int64_t steps = configs::load_run_config(run).train.steps;
  if (!state || state->best_step < 0 || state->step < steps) {
    return std::nullopt;
  }
  return state->best_loss;
}

}  // namespace

std::optional<Uptraining> uptrain(const fs::path& run, int64_t n_kv_head, const fs::path& folder,
                                  const fs::path& from_scratch, train::Observer& observer) {
  const PooledRun pooled = pool_run(run, n_kv_head, std::nullopt, {}, kCpu);
  std::error_code ignored;
  if (!fs::exists(folder / train::kConfigFile, ignored)) {
    write_pooled_run(pooled, folder);
  }
  const train::TrainResult result =
      train::train(pooled.config, {.folder = folder, .resume = true, .device = kCpu}, observer);
  if (result.interrupted) {
    return std::nullopt;
  }
  return Uptraining{.heads_before = pooled.original.config.model.n_kv_head,
                    .heads = n_kv_head,
                    .original_steps = pooled.original.config.train.steps,
                    .steps = pooled.config.train.steps,
                    .original = pooled.original_loss,
                    .pooled = pooled.pooled_loss,
                    .uptrained = result.best_loss,
                    .from_scratch = best_loss_of(from_scratch)};
}

}  // namespace headroom::experiments
