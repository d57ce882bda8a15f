// How far a long command is: parts done of all, and the time left.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "cli/live_line.h"

namespace headroom::cli {

class WorkProgress {
 public:
  /// Says nothing before `patience` seconds have passed: what is over sooner needs no progress.
  WorkProgress(const Common& common, std::string what, double patience = 0)
      : line_(common), what_(std::move(what)), patience_(patience) {}

  /// Told before each part of the work, and after the last; parts take about equally long.
  void at(int64_t done, int64_t all);
  /// What follows is written by somebody else.
  void end() { line_.end(); }

 private:
  LiveLine line_;
  std::string what_;
  double patience_;
  int64_t lines_ = 0;  // where stderr is no terminal
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace headroom::cli
