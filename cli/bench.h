// What the `bench` commands share: how they tell how far they are.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "cli/live_line.h"

namespace headroom::cli {

class BenchProgress {
 public:
  BenchProgress(const Common& common, std::string what) : line_(common), what_(std::move(what)) {}

  /// Told before each part of the work, and after the last; parts take about equally long.
  void at(int64_t done, int64_t all);

 private:
  LiveLine line_;
  std::string what_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace headroom::cli
