// What a real run does, counted while it runs: the work of generating some tokens from the first
// on, with a cache and without.
#pragma once

#include <functional>

#include "experiments/exhibit.h"
#include "infer/engine.h"

namespace headroom::experiments {

struct CountedWork {
  infer::GenerateStats naive, cached;
};

/// Generates `tokens` tokens after a prompt of one, greedily, both ways: passes over 1, 2, ...
/// `tokens` tokens. Calls `token_done` after each.
CountedWork count_work(const nn::GPT& model, int64_t tokens,
                       const std::function<void()>& token_done);

/// The exhibit flop-100 from the work of `tokens` tokens of `model`.
Exhibit show_work(const configs::ModelConfig& model, int64_t tokens, const CountedWork& counted);

}  // namespace headroom::experiments
