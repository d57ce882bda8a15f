// The experiment: every n_kv_head (and relief) with every seed, all else equal, each a training run
// of its own folder; the table, results.json, results.csv and report.html are rewritten after each
// run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "configs/config.h"
#include "experiments/result.h"
#include "experiments/summary.h"
#include "kernels/comm.h"
#include "train/observer.h"

namespace headroom::experiments {

/// Which run of how many is about to go on.
struct RunPosition {
  int64_t index = 0;  // from 1
  int64_t count = 0;
  int64_t n_kv_head = 0;
  int64_t seed = 0;
  std::string title;  // title_of() the row
};

/// Is told of the sweep's runs, and as a train::Observer of each run's own progress; there
/// Progress::seconds_left is that of the whole sweep.
class SweepObserver : public train::Observer {
 public:
  virtual void run_begins(const RunPosition&) {}
  /// A run has ended and the files are written. `warning` is empty or what went wrong with the
  /// report's charts.
  virtual void run_ended(const Sweep&, const Summary&, const std::string& /*warning*/) {}
};

struct SweepOptions {
  std::filesystem::path folder;       // made where absent; runs lie in it as kv4-seed1
  bool resume = false;                // go on with the sweep that the folder holds
  std::optional<Device> device = {};  // where it computes; absent: where train.device says
  /// Who shares the runs, each trained whole by one of them, in a folder that all can write to.
  kernels::Communicator* workers = &kernels::alone();
};

struct SweepOutcome {
  Sweep sweep;
  Summary summary;
  bool interrupted = false;  // by the observer, before the last run's end
};

/// Runs config.sweep, one seed after another with every n_kv_head in turn, so that a whole
/// comparison exists as early as possible. Finished runs are kept and an interrupted one goes on
/// where it was saved; a folder's config may only grow in sweep.seeds, sweep.n_kv_head and
/// sweep.also (and name another path of the same text, another device or other threads). A run
/// whose loss is no number counts as diverged and the others go on. Throws InputError before the
/// first run for what can't be trained and for a folder that holds something else, and Error when
/// results can't be written.
SweepOutcome run_sweep(const configs::Config& config, const SweepOptions& options,
                       SweepObserver& observer);

}  // namespace headroom::experiments
