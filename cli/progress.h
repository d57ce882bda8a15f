// A training run's progress on stderr: on a terminal one line that is painted over and fits its
// width; elsewhere a full line now and then.
#pragma once

#include <string>

#include "cli/common.h"
#include "experiments/sweep.h"
#include "train/interrupt.h"

namespace headroom::cli {

/// "1:02:03", "2:03".
std::string clock(double seconds);

/// Tells of one run (`train`) or of many (`sweep`). While it lives, Ctrl-C asks the run to stop,
/// and so does the end of whoever reads the log (`headroom train ... 2>&1 | head`).
class TrainingProgress : public experiments::SweepObserver {
 public:
  explicit TrainingProgress(const Common& common);
  ~TrainingProgress() override { end_live_line(); }
  TrainingProgress(const TrainingProgress&) = delete;
  TrainingProgress& operator=(const TrainingProgress&) = delete;

  void note(const std::string& sentence) override;
  void started(const train::RunStart& run) override;
  void stepped(const train::Progress& progress) override;
  void evaluated(int64_t step, const train::Evaluation& evaluation, bool best) override;
  bool stop_requested() override { return unread_ || interrupt_.requested(); }
  void run_begins(const experiments::RunPosition& run) override;
  void run_ended(const experiments::Sweep& sweep, const experiments::Summary& summary,
                 const std::string& warning) override;

 private:
  void write(const std::string& text) { unread_ = !log(text) || unread_; }
  void line(const std::string& text);
  /// `brief` is for a terminal too narrow for `text`.
  void live(const std::string& text, const std::string& brief);
  void end_live_line();

  const Common& common_;
  const bool terminal_;
  bool live_ = false;
  bool unread_ = false;
  std::string prefix_;  // of a sweep's lines: "3/8 "
  bool first_ = true;   // a sweep describes what its runs share once
  train::InterruptWatch interrupt_;
};

}  // namespace headroom::cli
