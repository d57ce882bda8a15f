// A training run's progress on stderr: on a terminal a live line, elsewhere a full line now and
// then.
#pragma once

#include <string>

#include "cli/live_line.h"
#include "experiments/sweep.h"
#include "train/interrupt.h"

namespace headroom::cli {

/// Tells of one run (`train`) or of many (`sweep`). While it lives, Ctrl-C asks the run to stop,
/// and so does the end of whoever reads the log (`headroom train ... 2>&1 | head`).
class TrainingProgress : public experiments::SweepObserver {
 public:
  explicit TrainingProgress(const Common& common) : common_(common), line_(common) {}

  void note(const std::string& sentence) override;
  void started(const train::RunStart& run) override;
  void stepped(const train::Progress& progress) override;
  void evaluated(int64_t step, const train::Evaluation& evaluation, bool best) override;
  bool stop_requested() override { return line_.unread() || interrupt_.requested(); }
  void run_begins(const experiments::RunPosition& run) override;
  void run_ended(const experiments::Sweep& sweep, const experiments::Summary& summary,
                 const std::string& warning) override;

 private:
  const Common& common_;
  LiveLine line_;
  std::string prefix_;  // of a sweep's lines: "3/8 "
  bool first_ = true;   // a sweep describes what its runs share once
  train::InterruptWatch interrupt_;
};

}  // namespace headroom::cli
