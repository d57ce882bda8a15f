// How fast a run goes and how long it will still take, evaluations and saves included.
#pragma once

#include <cstdint>

namespace headroom::train {

/// A duration that comes again: the mean at first, later one that forgets slowly.
class Duration {
 public:
  void add(double seconds);
  bool known() const { return count_ > 0; }
  double seconds() const { return mean_; }

 private:
  int64_t count_ = 0;
  double mean_ = 0;
};

class TimeLeft {
 public:
  /// `evaluation_share`: tokens of an evaluation over those of a step, for a guess before the first
  /// evaluation is timed (a forward pass is a third of a step).
  TimeLeft(int64_t tokens_per_step, double evaluation_share)
      : tokens_per_step_(tokens_per_step), evaluation_share_(evaluation_share) {}

  /// The first step of a process pays for what is made once (memory, compiled kernels): it counts
  /// only until there is a second.
  void step_took(double seconds);
  void evaluation_took(double seconds) { evaluation_.add(seconds); }
  void save_took(double seconds) { save_.add(seconds); }

  double tokens_per_second() const;
  /// Seconds for this many more steps, evaluations and saves.
  double seconds(int64_t steps, int64_t evaluations, int64_t saves) const;

 private:
  double step_seconds() const { return step_.known() ? step_.seconds() : first_step_; }

  int64_t tokens_per_step_;
  double evaluation_share_;
  double first_step_ = 0;
  bool any_step_ = false;
  Duration step_, evaluation_, save_;
};

/// How many of the steps in (done, steps] are multiples of `every` (0: none) or, with `and_last`,
/// the last one.
int64_t occasions_left(int64_t done, int64_t steps, int64_t every, bool and_last);

}  // namespace headroom::train
