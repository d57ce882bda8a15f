// Pooling, uptraining, and the four losses beside one another.
#include "experiments/uptrain.h"

#include <fmt/format.h>

#include "configs/load.h"
#include "experiments/convert.h"
#include "experiments/format.h"
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

/// Listens for the study: it has nothing to show, but may stop.
class StopObserver : public train::Observer {
 public:
  explicit StopObserver(const Study& study) : study_(study) {}
  bool stop_requested() override { return study_.stop_requested(); }

 private:
  const Study& study_;
};

fs::path sweep_run(const Study& study, int64_t n_kv_head, int64_t seed) {
  return study.sweep / fmt::format("kv{}-seed{}", n_kv_head, seed);
}

void add_rows(Exhibit& exhibit, const Uptraining& u) {
  const auto row = [&](const std::string& figure, std::optional<double> ours, std::string note) {
    exhibit.rows.push_back({.figure = fmt::format("{} KV heads, {}", u.heads, figure),
                            .published = {},
                            .published_to = {},
                            .ours = ours,
                            .unit = "nats/token",
                            .note = std::move(note)});
  };
  row("pooled, before uptraining", u.pooled, "");
  row(fmt::format("after {} of {} steps", u.steps, u.original_steps), u.uptrained, "");
  row("from scratch", u.from_scratch, u.from_scratch ? "" : "the sweep has no such run");
  exhibit.table.push_back({fmt::format("{}", u.heads), format_loss(u.original),
                           format_loss(u.pooled), format_loss(u.uptrained),
                           u.from_scratch ? format_loss(*u.from_scratch) : "-"});
}

}  // namespace

std::optional<Uptraining> uptrain(const fs::path& run, int64_t n_kv_head, const fs::path& folder,
                                  const fs::path& from_scratch, train::Observer& observer) {
  const PooledRun pooled = pool_run(run, n_kv_head, std::nullopt);
  std::error_code ignored;
  if (!fs::exists(folder / train::kConfigFile, ignored)) {
    write_pooled_run(pooled, folder);
  }
  const train::TrainResult result =
      train::train(pooled.config, {.folder = folder, .resume = true}, observer);
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

Exhibit make_uptraining(const Study& study) {
  const configs::Config sweep = configs::load_config(study.sweep / train::kConfigFile);
  const int64_t heads = sweep.model.n_head, seed = sweep.sweep.seeds.front();
  Exhibit exhibit;
  exhibit.table = {{"n_kv_head", "multi-head", "pooled", "uptrained", "from scratch"}};
  StopObserver observer(study);
  int64_t done = 0;
  const auto count = static_cast<int64_t>(sweep.sweep.n_kv_head.size());
  for (const int64_t fewer : sweep.sweep.n_kv_head) {
    study.progress(done++, count);
    if (fewer == heads) {
      continue;
    }
    const auto result =
        uptrain(sweep_run(study, heads, seed), fewer, study.folder / fmt::format("kv{}", fewer),
                sweep_run(study, fewer, seed), observer);
    if (!result) {
      throw Interrupted();
    }
    exhibit.setting = fmt::format(
        "The sweep's model of {} KV heads, seed {}, {} steps: groups of heads replaced by their "
        "mean, then {} steps more.",
        heads, seed, result->original_steps, result->steps);
    add_rows(exhibit, *result);
  }
  exhibit.why =
      "The published study (arXiv 2305.13245) uptrains T5 checkpoints for 5 % of their steps and "
      "reports task scores, which no loss of a small model can stand beside.";
  return exhibit;
}

}  // namespace headroom::experiments
