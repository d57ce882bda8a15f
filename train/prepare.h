// Everything that a run needs before its first step, checked: folder, data, memory, model, disk.
#pragma once

#include <filesystem>
#include <memory>

#include "train/batches.h"
#include "train/observer.h"
#include "train/precision.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace headroom::train {

struct Prepared {
  std::filesystem::path folder;
  RunState state;
  bool resumed = false;
  PrecisionChoice precision;
  std::unique_ptr<text::Tokenizer> tokenizer;
  /// Those of all workers; this one reads `micros` of each step from first_micro on.
  std::unique_ptr<Batches> batches;
  int64_t first_micro = 0, micros = 1;
  text::Tokens validation;
  std::unique_ptr<nn::GPT> model;
  std::unique_ptr<Optimizer> optimizer;
  int64_t parameters = 0;
};

/// Throws InputError, or Error for a folder that can't be written. Tells `observer` what it found.
Prepared prepare(const configs::Config& config, const TrainOptions& options, Observer& observer);

}  // namespace headroom::train
