// What a window costs, and what a few first tokens kept beside it give back: loss and bytes of
// caches with a window and 0, 1 or 4 sinks against a cache that keeps everything.
#pragma once

#include <string>
#include <vector>

#include "experiments/passages.h"

namespace headroom::experiments {

struct WindowLoss {
  int64_t window = 0;  // 0: every key is kept
  int64_t sinks = 0;
  int64_t bytes = 0;  // of one sequence's cache, as it is held
  PassageLoss loss;
};

/// {every key}, then the window with each number of sinks, on the same passages. Throws InputError
/// for a window that passages don't outgrow.
std::vector<WindowLoss> window_losses(const nn::GPT& model, const Passages& passages,
                                      int64_t window, const std::vector<int64_t>& sinks,
                                      const PartDone& part_done);

}  // namespace headroom::experiments
