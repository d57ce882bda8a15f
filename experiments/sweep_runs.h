// What a sweep plans before its first run, and what it reads from a run that has ended.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "configs/config.h"
#include "experiments/result.h"
#include "text/corpus.h"
#include "train/trainer.h"

namespace headroom::experiments {

/// FLOP and the seconds they take.
struct Work {
  double flop = 0;
  double seconds = 0;
};

/// Seconds for `later_flop` more, at the pace of the runs that are `done` and of the one under way
/// (`current`: what it took so far and what it says it will still take).
double later_seconds(double later_flop, const Work& done, const Work& current);

/// The sweep's models and its texts, before anything is trained.
struct Plan {
  /// By n_kv_head, then sweep.also, in the config's order; seed not yet set.
  std::vector<configs::Config> variants;
  std::vector<int64_t> flop;  // of one run of each
  Sweep sweep;                // rows without runs
  std::string corpus_hash;    // text::Corpus::hash
  std::string prompt;         // what the samples go on from
};

/// Reads the corpus and sizes every variant. Throws InputError for what can't be trained: an
/// n_kv_head that does not divide n_head, a corpus that is too short, too little memory.
Plan plan_sweep(const configs::Config& config, Device device);

/// One variant with one seed.
configs::Config run_config(const configs::Config& variant, int64_t seed);

/// What a run's metrics.jsonl says; empty without one.
struct RunLog {
  std::vector<LossPoint> curve;
  int64_t tokens = 0;  // trained on
  double seconds = 0;  // spent
};
RunLog read_log(const std::filesystem::path& folder, int64_t tokens_per_step);

/// The run of `folder` that train() has just brought to its end. Its seconds are the log's, which
/// don't change when a finished run is read again.
SeedRun read_run(const std::filesystem::path& folder, int64_t seed,
                 const train::TrainResult& result, int64_t tokens_per_step);
/// The same of a run that diverged: its final loss is NaN, its best one that of its evaluations.
SeedRun read_diverged_run(const std::filesystem::path& folder, int64_t seed,
                          int64_t tokens_per_step);

/// About 300 characters from the run's best model.
std::string draw_sample(const std::filesystem::path& folder, const std::string& prompt,
                        Device device);
/// How draw_sample() draws, in words.
std::string sample_note(const std::string& prompt);

}  // namespace headroom::experiments
