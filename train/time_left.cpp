// Durations that forget slowly, and their sum over what is still to come.
#include "train/time_left.h"

#include <algorithm>

namespace headroom::train {

namespace {
constexpr double kMemory = 50;  // occasions that a mean looks back on
}

void Duration::add(double seconds) {
  ++count_;
  mean_ += (seconds - mean_) / std::min(static_cast<double>(count_), kMemory);
}

void TimeLeft::step_took(double seconds) {
  if (any_step_) {
    step_.add(seconds);
  } else {
    first_step_ = seconds;
    any_step_ = true;
  }
}

double TimeLeft::tokens_per_second() const {
  const double seconds = step_seconds();
  return seconds > 0 ? static_cast<double>(tokens_per_step_) / seconds : 0;
}

double TimeLeft::seconds(int64_t steps, int64_t evaluations, int64_t saves) const {
  const double evaluation =
      evaluation_.known() ? evaluation_.seconds() : step_seconds() * evaluation_share_ / 3;
  return static_cast<double>(steps) * step_seconds() +
         static_cast<double>(evaluations) * evaluation +
         static_cast<double>(saves) * save_.seconds();
}

int64_t occasions_left(int64_t done, int64_t steps, int64_t every, bool and_last) {
  if (done >= steps) {
    return 0;
  }
  const int64_t regular = every > 0 ? steps / every - done / every : 0;
  const bool last_is_extra = and_last && (every == 0 || steps % every != 0);
  return regular + (last_is_extra ? 1 : 0);
}

}  // namespace headroom::train
