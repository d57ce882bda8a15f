// The harness's device as tensors see it.
#pragma once

#include "kernels/cuda/cuda_allocator.h"
#include "tensor/tensor.h"

namespace headroom::testing {

/// The device, with the backend's allocator installed for it.
inline Device gpu() {
  static auto* allocator = [] {
    auto* made = new kernels::cuda::CudaAllocator;  // outlives every tensor
    install_allocator(Device::Type::cuda, *made);
    return made;
  }();
  static_cast<void>(allocator);
  return {Device::Type::cuda, 0};
}

}  // namespace headroom::testing
