// Listens to a training run for a study: tells its progress in steps, and may stop it.
#pragma once

#include "experiments/exhibit.h"
#include "train/observer.h"

namespace headroom::experiments {

/// `done` steps of `all` were trained before this run; all 0: this run's steps are all there are.
class StudyObserver final : public train::Observer {
 public:
  explicit StudyObserver(const Study& study, int64_t done = 0, int64_t all = 0)
      : study_(study), done_(done), all_(all) {}
  void stepped(const train::Progress& progress) override {
    if (study_.stop_requested()) return;  // progress() would throw before the run is saved
    study_.progress(done_ + progress.step, all_ > 0 ? all_ : progress.steps);
  }
  bool stop_requested() override { return study_.stop_requested(); }

 private:
  const Study& study_;
  int64_t done_, all_;
};

}  // namespace headroom::experiments
