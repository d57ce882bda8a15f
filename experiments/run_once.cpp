// A training run under a study's progress and its wish to stop.
#include "experiments/run_once.h"

#include "train/trainer.h"

namespace headroom::experiments {
namespace {

class StudyObserver final : public train::Observer {
 public:
  explicit StudyObserver(const Study& study) : study_(study) {}
  void stepped(const train::Progress& progress) override {
    study_.progress(progress.step, progress.steps);
  }
  bool stop_requested() override { return study_.stop_requested(); }

 private:
  const Study& study_;
};

}  // namespace

void train_once(const configs::Config& config, const std::filesystem::path& folder,
                const Study& study) {
  StudyObserver observer(study);
  std::filesystem::create_directories(folder.parent_path());
  if (train::train(config, {.folder = folder, .resume = true}, observer).interrupted) {
    throw Interrupted();
  }
}

}  // namespace headroom::experiments
