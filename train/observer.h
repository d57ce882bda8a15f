// What a training run tells whoever started it, and the one question it asks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "train/evaluate.h"

namespace headroom::train {

/// What is known before the first step.
struct RunStart {
  std::filesystem::path folder;
  int64_t first_step = 1;  // above `steps` when the run is finished already
  int64_t steps = 0;
  int64_t parameters = 0;
  int64_t vocab_size = 0;
  int64_t cache_bytes_per_token = 0;  // f32
  int64_t tokens_per_step = 0;
  int64_t sequences_per_pass = 0;
  int64_t checkpoint_bytes = 0;
  Device device;
  bool deterministic = true;  // on a GPU: whether equal runs give equal bits
  int threads = 0;
  std::string precision;  // with the reason where it was chosen
  std::string corpus;     // its name
};

/// After a step.
struct Progress {
  int64_t step = 0;
  int64_t steps = 0;
  double loss = 0;  // nats per token
  double rate = 0;
  double gradient_norm = 0;
  int64_t pass = 1;  // over the training part
  double tokens_per_second = 0;
  double seconds_left = 0;  // with the evaluations and saves to come
};

class Observer {
 public:
  virtual ~Observer() = default;
  /// A sentence for the user.
  virtual void note(const std::string&) {}
  virtual void started(const RunStart&) {}
  virtual void stepped(const Progress&) {}
  virtual void evaluated(int64_t /*step*/, const Evaluation&, bool /*best*/) {}
  virtual void saved(int64_t /*step*/, const std::filesystem::path&) {}
  /// Asked after each step; true ends the run once that step is evaluated (where it is due) and
  /// saved.
  virtual bool stop_requested() { return false; }
};

}  // namespace headroom::train
