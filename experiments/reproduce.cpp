// Which exhibits are there, making those that are not, and writing down what is known after each.
#include "experiments/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "experiments/exhibit_report.h"
#include "experiments/machine.h"
#include "experiments/study_folder.h"
#include "experiments/sweep_runs.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "text/hash.h"
#include "train/run_folder.h"

namespace headroom::experiments {

namespace fs = std::filesystem;

namespace {

void check_ids(const std::vector<std::string>& only, const std::vector<ExhibitKind>& kinds) {
  std::vector<std::string> ids(kinds.size());
  std::ranges::transform(kinds, ids.begin(), &ExhibitKind::id);
  for (const std::string& id : only) {
    check_input(std::ranges::find(ids, id) != ids.end(),
                "--only is {}, which is no exhibit: there are {}", id, fmt::join(ids, ", "));
  }
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The result of an exhibit that could not be made.
DoneExhibit failed_exhibit(const ExhibitKind& kind, const std::string& reason) {
  DoneExhibit done;
  done.exhibit.id = kind.id;
  done.exhibit.title = kind.title;
  done.exhibit.rows.push_back({.figure = kind.title, .note = reason});
  return done;
}

class ReproduceDriver {
 public:
  ReproduceDriver(const ReproduceOptions& options, ReproduceObserver& observer,
                  SweepObserver& sweep_observer)
      : options_(options),
        observer_(observer),
        sweep_observer_(sweep_observer),
        machine_(this_machine()),
        done_(options.kinds.size()) {
    check_ids(options.only, options.kinds);
    choose_sweep();
    open_study_folder(options.folder);
    for (size_t i = 0; i < options.kinds.size(); ++i) read_stored(i);
    check_sweep_can_be_trained();
  }

  ReproduceOutcome run() {
    std::vector<size_t> open;
    for (size_t i = 0; i < options_.kinds.size(); ++i) {
      if (!asked(i)) continue;
      (done_[i] ? finished_ : open).push_back(i);
    }
    if (!finished_.empty()) {
      observer_.note(fmt::format("{} of {} exhibits are there already and kept", finished_.size(),
                                 finished_.size() + open.size()));
    }
    try {
      for (size_t at = 0; at < open.size(); ++at) {
        later_seconds_ = 0;
        for (size_t later = at + 1; later < open.size(); ++later) {
          later_seconds_ += expected(options_.kinds[open[later]]);
        }
        make(open[at], {.index = std::ssize(finished_) + static_cast<int64_t>(at) + 1,
                        .count = std::ssize(finished_) + std::ssize(open),
                        .id = options_.kinds[open[at]].id,
                        .title = options_.kinds[open[at]].title});
        publish();
      }
    } catch (const Interrupted&) {
      outcome_.interrupted = true;
    }
    publish();
    outcome_.asked = collect(true);
    return outcome_;
  }

 private:
  bool asked(size_t i) const {
    return options_.only.empty() ||
           std::ranges::find(options_.only, options_.kinds[i].id) != options_.only.end();
  }

  double expected(const ExhibitKind& kind) const {
    return options_.quick ? kind.quick_seconds : kind.seconds;
  }

  fs::path file_of(const ExhibitKind& kind) const { return exhibit_file(options_.folder, kind.id); }

  void choose_sweep() {
    if (!options_.sweep.empty()) {
      check_input(
          is_finished_sweep(options_.sweep),
          "--sweep is {}, which holds no finished sweep (a results.json that says so, and a "
          "config.yaml)",
          options_.sweep.string());
      sweep_ = options_.sweep;
      return;
    }
    sweep_ = find_sweep(options_.folder, options_.quick);
  }

  /// Before anything is computed: a missing corpus must not end a session an hour later.
  void check_sweep_can_be_trained() const {
    for (size_t i = 0; i < options_.kinds.size(); ++i) {
      if (sweep_.empty() && asked(i) && !done_[i] && options_.kinds[i].uses_sweep) {
        plan_sweep(options_.sweep_config, kCpu);
        return;
      }
    }
  }

  std::string sweep_hash() const { return text::content_hash(read_file(sweep_ / kStudyResults)); }

  /// What an exhibit's result depends on beside the program itself.
  std::string settings_of(const ExhibitKind& kind) const {
    return fmt::format("{}; {} threads of {}{}", options_.quick ? "quick" : "full",
                       machine_.threads, machine_.cpu,
                       kind.uses_sweep && !sweep_.empty() ? "; sweep " + sweep_hash() : "");
  }

  /// Where models are trained: another sweep's, and a quick study's, must not be taken for them.
  fs::path models_folder() const {
    return options_.folder / "models" /
           fmt::format("{}{}", sweep_hash().substr(0, 8), options_.quick ? "-quick" : "");
  }

  void read_stored(size_t i) {
    const ExhibitKind& kind = options_.kinds[i];
    std::error_code ignored;
    if ((kind.uses_sweep && sweep_.empty()) || !fs::exists(file_of(kind), ignored)) return;
    try {
      DoneExhibit stored = read_exhibit(file_of(kind));
      if (stored.settings == settings_of(kind)) {
        done_[i] = std::move(stored);
      } else if (asked(i)) {
        observer_.note(fmt::format("{} was made with other settings ({}) and is made again",
                                   kind.id, stored.settings));
      }
    } catch (const InputError& error) {
      observer_.note(fmt::format("{}; it is made again", error.what()));
    }
  }

  bool is_own_sweep() const { return sweep_ == own_sweep(options_.folder, options_.quick); }

  /// Trains the sweep unless there is one, and says which it is.
  void need_sweep() {
    if (!sweep_.empty()) {
      if (!sweep_told_) {
        observer_.note(
            fmt::format("the trained models come from the finished sweep in {}", sweep_.string()));
      }
      sweep_told_ = true;
      return;
    }
    const fs::path folder = own_sweep(options_.folder, options_.quick);
    observer_.note(fmt::format("the trained models come from a sweep that is run now, in {}",
                               folder.string()));
    std::error_code ignored;
    const SweepOutcome outcome =
        run_sweep(options_.sweep_config,
                  {.folder = folder,
                   .resume = fs::exists(folder / train::kConfigFile, ignored),
                   .device = kCpu},
                  sweep_observer_);
    if (outcome.interrupted) throw Interrupted();
    sweep_ = folder;
    sweep_told_ = true;
  }

  void make(size_t i, const ExhibitPosition& position) {
    const ExhibitKind& kind = options_.kinds[i];
    if (kind.uses_sweep) need_sweep();
    observer_.exhibit_begins(position);
    const auto begin = std::chrono::steady_clock::now();
    try {
      Exhibit exhibit = kind.make(study(kind, begin));
      exhibit.id = kind.id;
      exhibit.title = kind.title;
      done_[i] = {.exhibit = std::move(exhibit),
                  .settings = settings_of(kind),
                  .seconds = seconds_since(begin)};
      write_exhibit(file_of(kind), *done_[i]);
    } catch (const Error& error) {
      fail(i, error.what());
    } catch (const std::bad_alloc&) {
      fail(i, "the system grants no more memory");
    }
    spent_ += seconds_since(begin);
    spent_expected_ += expected(kind);
  }

  void fail(size_t i, const std::string& reason) {
    done_[i] = failed_exhibit(options_.kinds[i], reason);
    outcome_.failed.push_back(fmt::format("{}: {}", options_.kinds[i].id, reason));
  }

  Study study(const ExhibitKind& kind, std::chrono::steady_clock::time_point begin) {
    const double usual = expected(kind);
    return {.quick = options_.quick,
            .folder = kind.uses_sweep ? models_folder() : options_.folder,
            .sweep = kind.uses_sweep ? sweep_ : fs::path(),
            .preset = options_.preset,
            .progress =
                [this, begin, usual](int64_t done, int64_t all) {
                  if (observer_.stop_requested()) throw Interrupted();
                  const double so_far = seconds_since(begin);
                  const double share = static_cast<double>(done) / static_cast<double>(all);
                  const double left = done == 0 ? usual * pace() : so_far * (1 / share - 1);
                  observer_.exhibit_at(done, all, left + later_seconds_ * pace());
                },
            .stop_requested = [this] { return observer_.stop_requested(); }};
  }

  /// How much longer than usual this machine takes.
  double pace() const { return spent_expected_ > 0 ? spent_ / spent_expected_ : 1; }

  Reproduction collect(bool only_asked) const {
    Reproduction all{.exhibits = {},
                     .planned = std::ssize(options_.kinds),
                     .finished = outcome_.failed.empty(),
                     .quick = options_.quick,
                     .sweep = sweep_.string(),
                     .own_sweep = !sweep_.empty() && is_own_sweep(),
                     .machine = machine_};
    for (size_t i = 0; i < done_.size(); ++i) {
      all.finished = all.finished && done_[i];
      if (done_[i] && (asked(i) || !only_asked)) all.exhibits.push_back(*done_[i]);
    }
    return all;
  }

  void publish() {
    const Reproduction all = collect(false);
    write_file(options_.folder / kStudyResults, reproduction_json(all));
    Report report = make_exhibit_report(all);
    write_file(options_.folder / kStudyReport, report.html);
    outcome_.warning = std::move(report.warning);
  }

  const ReproduceOptions& options_;
  ReproduceObserver& observer_;
  SweepObserver& sweep_observer_;
  Machine machine_;
  fs::path sweep_;  // finished; empty: none yet
  bool sweep_told_ = false;
  std::vector<std::optional<DoneExhibit>> done_;  // by kind
  std::vector<size_t> finished_;                  // kinds asked for that were there already
  double spent_ = 0, spent_expected_ = 0;         // on the exhibits of this session
  double later_seconds_ = 0;                      // that the exhibits after this one usually take
  ReproduceOutcome outcome_;
};

}  // namespace

ReproduceOutcome reproduce(const ReproduceOptions& options, ReproduceObserver& observer,
                           SweepObserver& sweep_observer) {
  return ReproduceDriver(options, observer, sweep_observer).run();
}

}  // namespace headroom::experiments
