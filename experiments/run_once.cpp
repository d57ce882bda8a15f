// A training run under a study's progress and its wish to stop.
#include "experiments/run_once.h"

#include "experiments/study_observer.h"
#include "train/trainer.h"

namespace headroom::experiments {

void train_once(const configs::Config& config, const std::filesystem::path& folder,
                const Study& study) {
  StudyObserver observer(study);
  std::filesystem::create_directories(folder.parent_path());
  if (train::train(config, {.folder = folder, .resume = true, .device = kCpu}, observer)
          .interrupted) {
    throw Interrupted();
  }
}

}  // namespace headroom::experiments
