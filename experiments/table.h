// The table a sweep prints: one line per n_kv_head, aligned, readable at 100 columns.
#pragma once

#include <string>

#include "experiments/result.h"
#include "experiments/summary.h"

namespace headroom::experiments {

/// n_kv_head, parameters, cache/token, best val loss, Δ vs MHA and verdict of every row (n_ff or
/// layers, and tokens, where fairness makes them differ); under it best and final loss, the
/// smallest difference these seeds resolve, the seeds that would resolve kGoal, and the corpus.
/// UTF-8, ends in a newline.
std::string sweep_table(const Sweep& sweep, const Summary& summary);

/// "5 seeds", "1 seed": what a mean stands for, from the planned seeds.
std::string seeds_in_words(size_t seeds);

}  // namespace headroom::experiments
