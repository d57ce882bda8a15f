// The harness's device as tensors see it.
#pragma once

#include "kernels/backend.h"

namespace headroom::testing {

/// The device, with the backend's allocator installed for it.
inline Device gpu() {
  constexpr Device kGpu{Device::Type::cuda, 0};
  kernels::backend(kGpu);
  return kGpu;
}

}  // namespace headroom::testing
