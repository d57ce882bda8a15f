// A trained model with fewer KV heads: its heads pooled, as a run that training can go on from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/corpus.h"
#include "train/run_folder.h"

namespace headroom::experiments {

/// Share of the original steps that uptraining takes where nothing else is asked for: Ainslie et
/// al.'s 5 % (arXiv 2305.13245, section 2.2).
inline constexpr double kUptrainingShare = 0.05;

/// A run's model, the same with its KV heads pooled, and what both make of the validation split.
struct PooledRun {
  train::LoadedRun original;
  configs::Config config;  // of the pooled model: n_kv_head, steps and warmup_steps differ
  std::unique_ptr<nn::GPT> model;
  std::string corpus_hash;
  double original_loss = 0, pooled_loss = 0;  // exact, nats per token
};

/// Loads `run` on `device` (train::load_run) and pools it to `n_kv_head` heads (nn/pool_heads.h).
/// The config's steps are `steps`, or kUptrainingShare of the run's, at least 1; its warm-up is
/// shortened in the same ratio. Throws InputError for a number of heads that is not smaller or does
/// not divide the run's, for latent attention, and where the run's corpus is missing or is another
/// text.
PooledRun pool_run(const std::filesystem::path& run, int64_t n_kv_head,
                   std::optional<int64_t> steps, std::span<const std::string> overrides = {},
                   std::optional<Device> device = std::nullopt);

/// Throws InputError unless the folder is absent or empty.
void require_new_folder(const std::filesystem::path& folder);

/// Writes the pooled model as a run that stands at step 0, evaluated there, with the optimizer that
/// a new run has: `train --resume` uptrains it. The config is written last: without it there is no
/// run yet. Throws Error when that fails.
void write_pooled_run(const PooledRun& pooled, const std::filesystem::path& folder);

}  // namespace headroom::experiments
