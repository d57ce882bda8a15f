// What pooling KV heads costs and what a short uptraining brings back (Ainslie et al. 2023, arXiv
// 2305.13245): the losses of the original, of the pooled model before and after, and of a model
// that had so few heads from the start.
#pragma once

#include <filesystem>
#include <optional>

#include "train/observer.h"

namespace headroom::experiments {

/// Exact validation losses, nats per token.
struct Uptraining {
  int64_t heads_before = 0, heads = 0;
  int64_t original_steps = 0, steps = 0;
  double original = 0;  // of the run that was pooled
  double pooled = 0;    // before uptraining
  double uptrained = 0;
  std::optional<double> from_scratch;  // of a run that was given
};

/// Pools `run` to `n_kv_head` heads into `folder` and uptrains it there for 5 % of its steps; a
/// folder that holds this uptraining goes on where it stopped. `from_scratch`, where it exists, is
/// a finished run of n_kv_head heads. Absent when the observer stopped it. Throws InputError as
/// pool_run() and train::train() do.
std::optional<Uptraining> uptrain(const std::filesystem::path& run, int64_t n_kv_head,
                                  const std::filesystem::path& folder,
                                  const std::filesystem::path& from_scratch,
                                  train::Observer& observer);

}  // namespace headroom::experiments
