// Memory of the harness's device, with guard zones around it.
#pragma once

#include <cuda_runtime.h>

#include "tensor/tensor.h"

namespace headroom::testing {

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    check(cudaMalloc(&memory_, bytes) == cudaSuccess, "[simt] no memory");
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(memory_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
};

/// A copy of x that lies in memory of the device, which is the host's in the harness.
inline Tensor on_device(const Tensor& x) {
  auto memory = std::make_shared<DeviceMemory>(x.nbytes());
  Tensor copy = Tensor::over({memory, memory->as<void>()}, x.shape(), x.dtype());
  copy.copy_from(x);
  return copy;
}

}  // namespace headroom::testing
