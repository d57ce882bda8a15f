// The course of the learning rate, as a factor on the peak rate.
#pragma once

#include "configs/config.h"

namespace headroom::train {

/// Factor of step `step`, from 1 to train.steps. It rises linearly from 1 / warmup_steps at step 1
/// to its peak 1, which is reached at step max(1, warmup_steps) and never passed, and then
///   constant: stays;
///   cosine:   falls along half a cosine (Loshchilov and Hutter, arXiv 1608.03983);
///   linear:   falls in equal steps;
///   wsd:      stays until the last decay_fraction of the steps, then falls in equal steps
///             (arXiv 2404.06395);
/// the last three to exactly final_lr at the last step. So that both the peak and the end exist, a
/// warm-up over all steps is one step shorter; a run of one step takes the peak.
double schedule_factor(const configs::TrainConfig& train, int64_t step);

}  // namespace headroom::train
