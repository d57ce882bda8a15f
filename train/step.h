// One update of the weights: loss, backward, clip, optimizer.
#pragma once

#include <span>

#include "nn/gpt.h"
#include "train/batches.h"
#include "train/gradient_sync.h"
#include "train/optimizer.h"

namespace headroom::train {

struct StepOptions {
  int64_t step = 1;          // from 1
  double factor = 1;         // on the peak rates (train/schedule.h)
  double clip_norm = 0;      // largest global gradient norm; 0: no clipping
  DType dtype = DType::f32;  // of activations
  uint64_t seed = 0;         // of dropout
  /// Of several workers: how they add, and which of the step's sequences is the first of this one's
  /// batches. Each has equally many.
  GradientSync* sync = nullptr;
  int64_t first_sequence = 0;
};

struct StepResult {
  double loss = 0;           // mean over the step's targets, in nats per token
  double gradient_norm = 0;  // of the mean gradient, before clipping
};

/// A loss or a gradient norm that is no number, which changed no weight; or weights that are none,
/// found before they were saved.
class NotFinite : public Error {
 public:
  using Error::Error;
};

/// One update from equally large batches, whose gradients are averaged: several batches give what
/// one of all their sequences would, whichever workers they are on. Waits for the device once, when
/// all is asked of it. Throws NotFinite, which names the step, and leaves the weights as they were.
StepResult train_step(const nn::GPT& model, Optimizer& optimizer, std::span<const Batch> batches,
                      const StepOptions& options);

}  // namespace headroom::train
