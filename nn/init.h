// How weights start: normal with sd 0.02, and the projections that write to the residual stream
// narrower by the square root of their number (Radford et al. 2019, "Language models are
// unsupervised multitask learners", section 2.3).
#pragma once

#include <cmath>

#include "configs/config.h"

namespace headroom::nn {

inline constexpr double kInitSd = 0.02;

inline double residual_sd(const configs::ModelConfig& model) {
  return kInitSd / std::sqrt(2.0 * static_cast<double>(model.n_layer));
}

}  // namespace headroom::nn
