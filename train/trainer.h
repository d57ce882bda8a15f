// The training loop: batch, loss, backward, clip, step, log, evaluate, save.
#pragma once

#include <filesystem>
#include <optional>

#include "configs/config.h"
#include "kernels/comm.h"
#include "train/observer.h"

namespace headroom::train {

struct TrainOptions {
  std::filesystem::path folder;  // of the run; made where absent
  bool resume = false;           // go on from last.safetensors, or begin where nothing is saved
  std::optional<Device> device = {};  // where it computes; absent: where train.device says
  /// Who trains it together, each calling train() with the same config on a folder that all can
  /// read. They share the sequences of a step; the first one alone writes.
  kernels::Communicator* workers = &kernels::alone();
};

struct TrainResult {
  int64_t step = 0;          // updates done
  bool interrupted = false;  // by the observer, before the last step
  double final_loss = 0;     // of the last evaluation, in nats per token
  double best_loss = 0;      // the lowest of all evaluations; both are NaN before the first one
  int64_t best_step = 0;
  int64_t tokens = 0;  // trained on
  double seconds = 0;  // spent, earlier parts included
  int64_t parameters = 0;
  int64_t planned_bytes = 0;  // of memory: configs::training_memory
};

/// Trains `config` into a run folder. The same config, seed, threads and kind of processor give the
/// same bytes, whether in one go or resumed; another number of workers, or a GPU, adds in another
/// order.
/// Throws InputError before the first step for a folder that holds a run (unless `resume` continues
/// it), for data, memory or disk that don't suffice; Error for a loss that is not finite
/// (NotFinite) and for a save that fails: what was saved before stays.
TrainResult train(const configs::Config& config, const TrainOptions& options, Observer& observer);

}  // namespace headroom::train
