// In which type a run's activations are computed, and how that is said.
#pragma once

#include <string>

#include "configs/config.h"
#include "configs/enums.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace headroom::train {

struct PrecisionChoice {
  DType dtype = DType::f32;  // of activations
  std::string sentence;      // "bf16 (auto: the processor computes in bf16)"
};

/// automatic is bf16 on a GPU, and on a processor with `native_bf16` (kernels/threads.h); else
/// fp32.
PrecisionChoice choose_precision(configs::Precision asked, Device device, bool native_bf16);

}  // namespace headroom::train
