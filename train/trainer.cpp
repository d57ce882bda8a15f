// The loop: step, log, evaluate, save.
#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "configs/memory.h"
#include "kernels/threads.h"
#include "kernels/trace.h"
#include "train/gradient_sync.h"
#include "train/metrics.h"
#include "train/prepare.h"
#include "train/schedule.h"
#include "train/step.h"
#include "train/time_left.h"

namespace headroom::train {

namespace {

class Stopwatch {
 public:
  /// Seconds since construction or the last lap.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> seconds = now - begin_;
    begin_ = now;
    return seconds.count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

class Trainer {
 public:
  Trainer(const configs::Config& config, Prepared& run, Observer& observer,
          kernels::Communicator& workers)
      : config_(config.train),
        run_(run),
        observer_(observer),
        workers_(workers),
        time_left_(run.batches->tokens_per_step(),
                   static_cast<double>(run.validation.ids.size()) /
                       static_cast<double>(run.batches->tokens_per_step())) {
    if (workers.size() > 1) {
      sync_.emplace(workers, run.model->parameters());
    }
    if (leads()) {
      metrics_.emplace(run.folder / kMetricsFile, run.state.step);
      seconds_ = metrics_->seconds();
    }
  }

  /// Whether an observer's request ended the run early.
  bool run() {
    if (config_.steps == 0) {
      evaluate();
      save();
    }
    while (run_.state.step < config_.steps) {
      step();
      const int64_t now = run_.state.step;
      const bool stop = kernels::sum_over(workers_, observer_.stop_requested() ? 1 : 0) > 0;
      const bool evaluates = due(now, config_.eval_every) || now == config_.steps;
      if (evaluates) {
        evaluate();
      }
      if (evaluates || stop || due(now, config_.save_every)) {
        save();
      }
      if (stop && now < config_.steps) {
        return true;
      }
    }
    return false;
  }

  double seconds() const { return seconds_; }

 private:
  /// Whether this worker is the one that writes.
  bool leads() const { return workers_.rank() == 0; }

  void write(const nlohmann::ordered_json& line) {
    if (metrics_) {
      metrics_->write(line);
    }
  }

  double lap() {
    const double seconds = watch_.lap();
    seconds_ += seconds;
    return seconds;
  }

  void step() {
    const int64_t step = run_.state.step + 1;
    const double factor = schedule_factor(config_, step);
    std::vector<Batch> batches;
    for (int64_t micro = 0; micro < run_.micros; ++micro) {
      batches.push_back(run_.batches->get(step, run_.first_micro + micro));
    }
    const StepResult result = update(batches, step, factor);
    run_.state.step = step;
    run_.state.sequences = step * run_.batches->sequences_per_step();
    time_left_.step_took(lap());
    report(result, factor);
  }

  StepResult update(const std::vector<Batch>& batches, int64_t step, double factor) {
    try {
      return train_step(*run_.model, *run_.optimizer, batches,
                        {.step = step,
                         .factor = factor,
                         .clip_norm = config_.clip_norm,
                         .dtype = run_.precision.dtype,
                         .seed = static_cast<uint64_t>(config_.seed),
                         .sync = sync_ ? &*sync_ : nullptr,
                         .first_sequence = run_.first_micro * run_.batches->batch_size()});
    } catch (const NotFinite& error) {
      throw NotFinite(fmt::format("{}, at a rate of {}; {}", error.what(), factor * config_.lr,
                                  what_is_kept()));
    }
  }

  std::string what_is_kept() const {
    return saved_step_ < 0 ? std::string("nothing had been saved yet")
                           : fmt::format("{} keeps the weights of step {}",
                                         (run_.folder / kLastFile).string(), saved_step_);
  }

  void report(const StepResult& result, double factor) {
    const int64_t step = run_.state.step, steps = config_.steps;
    const int64_t evaluations = occasions_left(step, steps, config_.eval_every, true);
    const int64_t saves =
        std::max(evaluations, occasions_left(step, steps, config_.save_every, true));
    const Progress progress{.step = step,
                            .steps = steps,
                            .loss = result.loss,
                            .rate = factor * config_.lr,
                            .gradient_norm = result.gradient_norm,
                            .pass = run_.batches->pass(step),
                            .tokens_per_second = time_left_.tokens_per_second(),
                            .seconds_left = time_left_.seconds(steps - step, evaluations, saves)};
    write({{"step", step},
           {"loss", progress.loss},
           {"lr", progress.rate},
           {"grad_norm", progress.gradient_norm},
           {"tokens", step * run_.batches->tokens_per_step()},
           {"pass", progress.pass},
           {"seconds", seconds_}});
    observer_.stepped(progress);
  }

  void evaluate() {
    RunState& state = run_.state;
    const Evaluation result =
        train::evaluate(*run_.model, run_.validation, *run_.tokenizer,
                        {.batch_size = config_.batch_size, .workers = &workers_});
    if (!std::isfinite(result.loss_nats)) {
      throw NotFinite(fmt::format("[train] the validation loss is {} after step {}; {}",
                                  result.loss_nats, state.step, what_is_kept()));
    }
    state.evaluated_step = state.step;
    state.val_loss = result.loss_nats;
    const bool best = state.best_step < 0 || result.loss_nats < state.best_loss;
    if (best) {
      state.best_step = state.step;
      state.best_loss = result.loss_nats;
    }
    time_left_.evaluation_took(lap());
    write({{"step", state.step},
           {"val_loss", result.loss_nats},
           {"bits_per_byte", result.bits_per_byte},
           {"best", best},
           {"seconds", seconds_}});
    observer_.evaluated(state.step, result, best);
  }

  void save() {
    const kernels::Phase phase("save");
    const RunState& state = run_.state;
    if (sync_) {
      require_same_weights(workers_, run_.model->parameters(), state.step);
    }
    const NamedTensors optimizer = run_.optimizer->whole_state();
    if (leads()) {
      save_checkpoint(run_.folder / kLastFile, *run_.model, optimizer, state);
      if (state.best_step == state.step) {
        save_checkpoint(run_.folder / kBestFile, *run_.model, optimizer, state);
      }
    }
    saved_step_ = state.step;
    time_left_.save_took(lap());
    observer_.saved(state.step, run_.folder / kLastFile);
  }

  const configs::TrainConfig& config_;
  Prepared& run_;
  Observer& observer_;
  kernels::Communicator& workers_;
  std::optional<GradientSync> sync_;  // of several workers
  std::optional<Metrics> metrics_;    // of the one that writes
  TimeLeft time_left_;
  Stopwatch watch_;
  double seconds_ = 0;
  int64_t saved_step_ = run_.resumed ? run_.state.step : -1;
};

/// What the workers beside the first one tell: nothing. Any of them may ask to stop.
class Follower final : public Observer {
 public:
  explicit Follower(Observer& observer) : observer_(observer) {}
  bool stop_requested() override { return observer_.stop_requested(); }

 private:
  Observer& observer_;
};

}  // namespace

TrainResult train(const configs::Config& config, const TrainOptions& options, Observer& observer) {
  Follower follower(observer);
  Observer& listener = options.workers->rank() == 0 ? observer : follower;
  Prepared run = prepare(config, options, listener);
  Trainer trainer(config, run, listener, *options.workers);
  TrainResult result;
  result.interrupted = trainer.run();
  const RunState& state = run.state;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  result.step = state.step;
  result.final_loss = state.evaluated_step >= 0 ? state.val_loss : kNone;
  result.best_loss = state.best_step >= 0 ? state.best_loss : kNone;
  result.best_step = state.best_step;
  result.tokens = state.step * run.batches->tokens_per_step();
  result.seconds = trainer.seconds();
  result.parameters = run.parameters;
  result.planned_bytes = configs::total_bytes(configs::training_memory(
      config, run.model->vocab_size(), static_cast<int64_t>(size_of(run.precision.dtype))));
  return result;
}

}  // namespace headroom::train
