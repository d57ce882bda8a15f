#include "experiments/sweep.h"

#include <chrono>
#include <ctime>
#include <limits>

#include "configs/load.h"
#include "configs/print.h"
#include "configs/size.h"
#include "experiments/report.h"
#include "experiments/results_file.h"
#include "experiments/sweep_runs.h"
#include "tensor/file.h"
#include "train/run_folder.h"
#include "train/step.h"

namespace headroom::experiments {

namespace fs = std::filesystem;

namespace {

/// Refuses a folder that holds another sweep, and a second sweep in one folder without `resume`.
void check_folder(const configs::Config& config, const SweepOptions& options) {
  const fs::path stored = options.folder / train::kConfigFile;
  if (!fs::exists(stored)) {
    return;
  }
  check_input(options.resume, "{}: holds a sweep: --resume goes on with it, another --out keeps it",
              options.folder.string());
  for (const auto& difference : configs::differences(configs::load_config(stored), config)) {
    const bool free = difference.key.starts_with("sweep.") && difference.key != "sweep.fair";
    check_input(free || difference.key == "data.corpus" || difference.key == "train.threads",
                "{} is {} in {} and {} now: a sweep goes on with the config it began with",
                difference.key, difference.left, stored.string(), difference.right);
  }
}

/// "2026-11-30 14:05", local time, of the file's last change.
std::string written_at(const fs::path& file) {
  const auto when = std::chrono::file_clock::to_sys(fs::last_write_time(file));
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(when));
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local);
  return text;
}

/// Passes a run's progress on, with the time that the later runs will take added to its own.
class RunObserver : public train::Observer {
 public:
  RunObserver(SweepObserver& outer, double later_seconds, double later_share)
      : outer_(outer), later_seconds_(later_seconds), later_share_(later_share) {}
  void note(const std::string& sentence) override { outer_.note(sentence); }
  void started(const train::RunStart& start) override { outer_.started(start); }
  void stepped(const train::Progress& progress) override {
    train::Progress whole = progress;
    const double run = spent() + progress.seconds_left;
    whole.seconds_left += later_seconds_ > 0 ? later_seconds_ : run * later_share_;
    outer_.stepped(whole);
  }
  void evaluated(int64_t step, const train::Evaluation& e, bool best) override {
    outer_.evaluated(step, e, best);
  }
  void saved(int64_t step, const fs::path& file) override { outer_.saved(step, file); }
  bool stop_requested() override { return outer_.stop_requested(); }

 private:
  double spent() const {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    return seconds.count();
  }
  SweepObserver& outer_;
  double later_seconds_;  // of the runs to come, once a run has told what a FLOP costs; else 0
  double later_share_;    // their FLOP over this run's
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class Driver {
 public:
  Driver(const configs::Config& config, const SweepOptions& options, SweepObserver& observer)
      : config_(config), options_(options), observer_(observer), plan_(plan_sweep(config)) {
    check_folder(config, options);
    std::error_code error;
    fs::create_directories(options.folder, error);
    check(!error, "{}: can't be made: {}", options.folder.string(), error.message());
    const fs::path stored = options.folder / train::kConfigFile;
    if (const std::string yaml = configs::to_yaml(config);
        !fs::exists(stored) || read_file(stored) != yaml) {
      write_file(stored, yaml);
    }
    plan_.sweep.started = written_at(stored);
  }

  SweepOutcome run() {
    const auto count = static_cast<int64_t>(plan_.variants.size() * config_.sweep.seeds.size());
    int64_t index = 0;
    for (const int64_t seed : config_.sweep.seeds) {
      for (size_t row = 0; row < plan_.variants.size(); ++row) {
        observer_.run_begins({++index, count, plan_.sweep.rows[row].n_kv_head, seed});
        if (!run_one(row, seed)) {
          return {plan_.sweep, summarize(plan_.sweep), true};
        }
        plan_.sweep.finished = index == count;
        publish();
      }
    }
    return {plan_.sweep, summarize(plan_.sweep), false};
  }

 private:
  /// False when it was interrupted.
  bool run_one(size_t row, int64_t seed) {
    const configs::Config config = run_config(plan_.variants[row], seed);
    Row& result = plan_.sweep.rows[row];
    const fs::path folder = options_.folder / fmt::format("{}-seed{}", result.name, seed);
    RunObserver observer(observer_, later_seconds(row), later_share(row));
    try {
      const auto trained =
          train::train(config, {.folder = folder, .resume = train::holds_run(folder)}, observer);
      if (trained.interrupted) {
        return false;
      }
      result.runs.push_back(read_run(folder, seed, trained, configs::tokens_per_step(config)));
    } catch (const train::NotFinite& error) {
      observer_.note(fmt::format("{}; this run counts as diverged", error.what()));
      constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
      result.runs.push_back({.seed = static_cast<uint64_t>(seed),
                             .best_loss = kNone,
                             .final_loss = kNone,
                             .curve = {}});
    }
    if (result.sample.empty() && fs::exists(folder / train::kLastFile)) {
      result.sample = draw_sample(folder, plan_.prompt);
    }
    plan_.sweep.seconds += result.runs.back().seconds;
    flop_done_ += static_cast<double>(plan_.flop[row]);
    return true;
  }

  double later_flop(size_t row) const {
    double later = -flop_done_ - static_cast<double>(plan_.flop[row]);
    for (const int64_t flop : plan_.flop) {
      later += static_cast<double>(flop) * static_cast<double>(config_.sweep.seeds.size());
    }
    return later;
  }
  double later_seconds(size_t row) const {
    return flop_done_ > 0 ? later_flop(row) * plan_.sweep.seconds / flop_done_ : 0.0;
  }
  double later_share(size_t row) const {
    return later_flop(row) / static_cast<double>(plan_.flop[row]);
  }

  void publish() {
    const Summary summary = summarize(plan_.sweep);
    write_results(options_.folder, plan_.sweep, summary);
    const std::string warning = write_report(options_.folder, plan_.sweep, summary);
    observer_.run_ended(plan_.sweep, summary, warning);
  }

  const configs::Config& config_;
  const SweepOptions& options_;
  SweepObserver& observer_;
  Plan plan_;
  double flop_done_ = 0;
};

}  // namespace

SweepOutcome run_sweep(const configs::Config& config, const SweepOptions& options,
                       SweepObserver& observer) {
  return Driver(config, options, observer).run();
}

}  // namespace headroom::experiments
