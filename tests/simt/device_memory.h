// Memory of the harness's device, with guard zones around it.
#pragma once

#include <cuda_runtime.h>

#include "tensor/check.h"

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

}  // namespace headroom::testing
