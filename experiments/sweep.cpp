// The loop over seeds and models, and what may change between two sessions of a sweep.
#include "experiments/sweep.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <vector>

#include "configs/load.h"
#include "configs/print.h"
#include "configs/size.h"
#include "experiments/report.h"
#include "experiments/results_file.h"
#include "experiments/sweep_runs.h"
#include "tensor/file.h"
#include "train/device.h"
#include "train/run_folder.h"
#include "train/step.h"

namespace headroom::experiments {

namespace fs = std::filesystem;

namespace {

template <class T>
bool holds_all(const std::vector<T>& list, const std::vector<T>& others) {
  return std::ranges::all_of(
      others, [&](const T& other) { return std::ranges::find(list, other) != list.end(); });
}

/// Whether a sweep that began with `stored` may go on with another value of `key`.
bool may_change(const std::string& key, const configs::Config& stored,
                const configs::Config& config) {
  if (key == "sweep.seeds") {
    return holds_all(config.sweep.seeds, stored.sweep.seeds);
  }
  if (key == "sweep.n_kv_head") {
    return holds_all(config.sweep.n_kv_head, stored.sweep.n_kv_head);
  }
  if (key == "sweep.also") {
    return holds_all(config.sweep.also, stored.sweep.also);
  }
  // The runs know the text itself.
  return key == "data.corpus" || key == "train.threads" || key == "train.device";
}

/// Refuses what is no folder, a folder that holds a run or another sweep, and a second sweep in one
/// folder without `resume`.
void check_folder(const configs::Config& config, const SweepOptions& options) {
  const std::string folder = options.folder.string();
  std::error_code ignored;
  check_input(!fs::exists(options.folder, ignored) || fs::is_directory(options.folder, ignored),
              "{}: can't be the sweep's folder: it is not a directory", folder);
  check_input(!fs::exists(options.folder / train::kTokenizerFile, ignored),
              "{}: holds a training run; a sweep wants a folder of its own", folder);
  const fs::path stored = options.folder / train::kConfigFile;
  if (!fs::exists(stored, ignored)) {
    return;
  }
  check_input(options.resume, "{}: holds a sweep: --resume goes on with it, another --out keeps it",
              folder);
  const configs::Config before = configs::load_config(stored);
  for (const auto& difference : configs::differences(before, config)) {
    check_input(may_change(difference.key, before, config),
                "{} is {} in {} and {} now: a sweep goes on with the config it began with, in "
                "which only sweep.seeds, sweep.n_kv_head and sweep.also may grow",
                difference.key, difference.left, stored.string(), difference.right);
  }
}

/// Stores the config; the file keeps the time at which the sweep began.
void store_config(const fs::path& file, const std::string& yaml) {
  if (!fs::exists(file)) {
    write_file(file, yaml);
  } else if (read_file(file) != yaml) {
    const auto begun = fs::last_write_time(file);
    write_file(file, yaml);
    fs::last_write_time(file, begun);
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
  struct Times {
    double earlier_seconds = 0;  // that earlier sessions spent on this run
    double flop = 0;             // of this run
    Work done;                   // the finished runs
    double later_flop = 0;       // of the runs after this one
  };
  RunObserver(SweepObserver& outer, const Times& times) : outer_(outer), times_(times) {}
  void note(const std::string& sentence) override { outer_.note(sentence); }
  void started(const train::RunStart& start) override { outer_.started(start); }
  void stepped(const train::Progress& progress) override {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    const Work run{times_.flop, times_.earlier_seconds + spent.count() + progress.seconds_left};
    train::Progress whole = progress;
    whole.seconds_left += later_seconds(times_.later_flop, times_.done, run);
    outer_.stepped(whole);
  }
  void evaluated(int64_t step, const train::Evaluation& e, bool best) override {
    outer_.evaluated(step, e, best);
  }
  void saved(int64_t step, const fs::path& file) override { outer_.saved(step, file); }
  bool stop_requested() override { return outer_.stop_requested(); }

 private:
  SweepObserver& outer_;
  Times times_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// A variant with a seed.
struct Run {
  size_t row = 0;
  int64_t seed = 0;
  configs::Config config;
  fs::path folder;
};

class SweepDriver {
 public:
  SweepDriver(const configs::Config& config, const SweepOptions& options, SweepObserver& observer)
      : config_(config),
        options_(options),
        observer_(observer),
        device_(train::choose_device(options.device, config.train)) {
    check_folder(config, options);
    plan_ = plan_sweep(config, device_);
    find_runs();
    std::error_code error;
    fs::create_directories(options.folder, error);
    check(!error, "{}: can't be made: {}", options.folder.string(), error.message());
    const fs::path stored = options.folder / train::kConfigFile;
    store_config(stored, plan_.sweep.config_yaml);
    plan_.sweep.started = written_at(stored);
  }

  /// Trains what is still to be trained, and reads and shows everything.
  SweepOutcome run() {
    read_finished();
    auto index = std::ssize(finished_);
    const int64_t count = index + std::ssize(open_);
    if (index > 0) {
      observer_.note(fmt::format("{} of {} runs are finished and kept", index, count));
    }
    if (open_.empty()) {
      publish();
    }
    for (const Run& run : open_) {
      later_flop_ -= flop(run);
      if (!begin_and_finish(run, ++index, count)) {
        return outcome(true);
      }
      publish();
    }
    return outcome(false);
  }

  /// Of what is still to be trained, trains every size-th run from the rank-th on; false when it
  /// was interrupted.
  bool train_share(const kernels::Communicator& workers) {
    std::vector<Run> share;
    later_flop_ = 0;
    for (int64_t i = workers.rank(); i < std::ssize(open_); i += workers.size()) {
      share.push_back(open_[static_cast<size_t>(i)]);
      later_flop_ += flop(share.back());
    }
    int64_t index = 0;
    return std::ranges::all_of(share, [&](const Run& run) {
      later_flop_ -= flop(run);
      return begin_and_finish(run, ++index, std::ssize(share));
    });
  }

  /// What was finished before, as the outcome of a sweep that was interrupted.
  SweepOutcome interrupted() {
    read_finished();
    return outcome(true);
  }

 private:
  double flop(const Run& run) const { return static_cast<double>(plan_.flop[run.row]); }

  /// Tells the runs that are finished from those still to be trained. What a folder holds is
  /// checked here, before the first step of any.
  void find_runs() {
    for (const int64_t seed : config_.sweep.seeds) {
      for (size_t row = 0; row < plan_.variants.size(); ++row) {
        Run run{row, seed, run_config(plan_.variants[row], seed),
                options_.folder / fmt::format("{}-seed{}", plan_.sweep.rows[row].name, seed)};
        std::optional<train::RunState> state;
        if (train::holds_run(run.folder)) {
          state = train::read_resume_state(run.folder, run.config);
        }
        check_input(!state || state->corpus_hash == plan_.corpus_hash,
                    "{}: is not the text that {} was trained on", config_.data.corpus,
                    run.folder.string());
        const bool finished = state && state->step >= run.config.train.steps;
        if (!finished) {
          later_flop_ += flop(run);
        }
        (finished ? finished_ : open_).push_back(std::move(run));
      }
    }
  }

  void read_finished() {
    train::Observer nobody;
    for (const Run& run : finished_) {
      finish(run, nobody);
    }
  }

  /// Announces the index-th run of `count` and trains it; false when it was interrupted.
  bool begin_and_finish(const Run& run, int64_t index, int64_t count) {
    if (observer_.stop_requested()) {
      return false;
    }
    const Row& row = plan_.sweep.rows[run.row];
    observer_.run_begins({index, count, row.n_kv_head, run.seed, title_of(row)});
    RunObserver observer(
        observer_,
        {.earlier_seconds = read_log(run.folder, configs::tokens_per_step(run.config)).seconds,
         .flop = flop(run),
         .done = done_,
         .later_flop = later_flop_});
    return finish(run, observer);
  }

  /// Brings a run to its end and reads it; false when it was interrupted.
  bool finish(const Run& run, train::Observer& observer) {
    Row& row = plan_.sweep.rows[run.row];
    try {
      const auto trained = train::train(
          run.config,
          {.folder = run.folder, .resume = train::holds_run(run.folder), .device = device_},
          observer);
      if (trained.interrupted) {
        return false;
      }
      SeedRun result =
          read_run(run.folder, run.seed, trained, configs::tokens_per_step(run.config));
      done_.flop += flop(run);
      done_.seconds += result.seconds;
      insert(row, std::move(result));
    } catch (const train::NotFinite& error) {
      observer.note(fmt::format("{}; this run counts as diverged", error.what()));
      insert(row, read_diverged_run(run.folder, run.seed, configs::tokens_per_step(run.config)));
      return true;
    }
    const bool is_first = row.runs.front().seed == static_cast<uint64_t>(run.seed);
    if (row.sample.empty() || is_first) {
      row.sample = draw_sample(run.folder, plan_.prompt, device_);
    }
    return true;
  }

  /// Runs stand in the order of the seeds, in whatever order they were finished.
  void insert(Row& row, SeedRun run) {
    const auto place = [&](uint64_t seed) {
      return std::ranges::find(plan_.sweep.seeds, seed) - plan_.sweep.seeds.begin();
    };
    plan_.sweep.seconds += run.seconds;
    const auto next = std::ranges::find_if(
        row.runs, [&](const SeedRun& other) { return place(other.seed) > place(run.seed); });
    row.runs.insert(next, std::move(run));
  }

  SweepOutcome outcome(bool interrupted) const {
    return {plan_.sweep, summarize(plan_.sweep), interrupted};
  }

  void publish() {
    const Summary summary = summarize(plan_.sweep);
    plan_.sweep.finished = summary.runs_done == summary.runs_planned;
    write_results(options_.folder, plan_.sweep, summary);
    const std::string warning = write_report(options_.folder, plan_.sweep, summary);
    observer_.run_ended(plan_.sweep, summary, warning);
  }

  const configs::Config& config_;
  const SweepOptions& options_;
  SweepObserver& observer_;
  const Device device_;
  Plan plan_;
  std::vector<Run> finished_, open_;
  Work done_;              // this and earlier sessions' runs
  double later_flop_ = 0;  // of the runs not yet begun
};

/// Every worker trains its share. Absent when all runs are trained, else what was done.
std::optional<SweepOutcome> share_runs(const configs::Config& config, const SweepOptions& options,
                                       SweepObserver& observer) {
  kernels::Communicator& workers = *options.workers;
  const bool first = workers.rank() == 0;
  const SweepOptions resumed{.folder = options.folder,
                             .resume = true,
                             .device = options.device,
                             .workers = options.workers};
  std::optional<SweepDriver> driver;
  if (first) {
    driver.emplace(config, options, observer);
  }
  kernels::meet(workers);  // the folder is there
  if (!first) {
    driver.emplace(config, resumed, observer);
  }
  kernels::meet(workers);  // all have seen the same runs in it
  const bool stopped = !driver->train_share(workers);
  if (kernels::sum_over(workers, stopped ? 1 : 0) > 0) {
    return SweepDriver(config, resumed, observer).interrupted();
  }
  return std::nullopt;
}

}  // namespace

SweepOutcome run_sweep(const configs::Config& config, const SweepOptions& options,
                       SweepObserver& observer) {
  if (options.workers->size() == 1) {
    return SweepDriver(config, options, observer).run();
  }
  const std::optional<SweepOutcome> interrupted = share_runs(config, options, observer);
  if (interrupted || options.workers->rank() > 0) {
    return interrupted.value_or(SweepOutcome{});
  }
  return SweepDriver(config, {.folder = options.folder, .resume = true, .device = options.device},
                     observer)
      .run();
}

}  // namespace headroom::experiments
