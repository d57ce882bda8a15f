// The rate as a function of the step.
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/check.h"

namespace headroom::train {

using configs::Schedule;

namespace {

/// The step that has the peak rate.
int64_t peak_step(const configs::TrainConfig& train) {
  const int64_t last = train.schedule == Schedule::constant ? train.steps : train.steps - 1;
  return std::max<int64_t>(1, std::min(train.warmup_steps, last));
}

}  // namespace

double schedule_factor(const configs::TrainConfig& train, int64_t step) {
  check(step >= 1 && step <= train.steps, "[schedule] steps are 1 to {}: got {}", train.steps,
        step);
  const int64_t peak = peak_step(train);
  if (step <= peak) {
    return static_cast<double>(step) / static_cast<double>(peak);
  }
  const auto steps = static_cast<double>(train.steps), now = static_cast<double>(step);
  double begin = static_cast<double>(peak);
  if (train.schedule == Schedule::wsd) {
    begin = std::max(begin, steps * (1 - train.decay_fraction));
  }
  if (train.schedule == Schedule::constant || now <= begin) {
    return 1;
  }
  if (step == train.steps) {  // exactly, whatever the rounding of the formulas
    return train.final_lr;
  }
  const double part = (now - begin) / (steps - begin);
  const double share =
      train.schedule == Schedule::cosine ? (1 + std::cos(std::numbers::pi * part)) / 2 : 1 - part;
  return train.final_lr + (1 - train.final_lr) * share;
}

}  // namespace headroom::train
