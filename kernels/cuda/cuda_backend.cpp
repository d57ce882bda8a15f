// The one GPU of this process.
#include "kernels/cuda/cuda_backend.h"

#include <cublasLt.h>

#include "kernels/cuda/cuda_allocator.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/runtime.h"

namespace headroom::kernels::cuda {

namespace {

void choose(int index) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  const Device device{Device::Type::cuda, index};
  check_input(found == cudaSuccess && count > 0,
              "the device is {}, but this machine has no NVIDIA GPU that CUDA can use ({}): use "
              "--device cpu",
              device, found == cudaSuccess ? "none is visible" : cudaGetErrorString(found));
  check_input(index < count, "the device is {}, but this machine has cuda:0 to cuda:{}", device,
              count - 1);
  check_call(cudaSetDevice(index), "choosing the GPU");
}

/// Major and minor as the runtime packs them: 1000 major + 10 minor.
std::string runtime_version() {
  int version = 0;
  check_call(cudaRuntimeGetVersion(&version), "asking for the runtime's version");
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

void CudaBackend::wait() { synchronize(); }

Backend& device_backend(int index) {
  static const int chosen = [index] {
    choose(index);
    install_allocator(Device::Type::cuda, gpu_memory());
    return index;
  }();
  check_input(index == chosen, "the device is {}, but this process computes on cuda:{} already",
              Device{Device::Type::cuda, index}, chosen);
  static CudaBackend backend;
  return backend;
}

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string device_version() {
  const auto blas = static_cast<int>(cublasLtGetVersion());  // 10000 major + 100 minor + patch
  const int gpus = device_count();
  return fmt::format("cuda ({}, runtime {}, cuBLASLt {}.{}.{}{})",
                     gpus == 0 ? "no GPU" : fmt::format("{} GPU{}", gpus, gpus == 1 ? "" : "s"),
                     runtime_version(), blas / 10000, blas / 100 % 100, blas % 100,
                     cudnn_version());
}

}  // namespace headroom::kernels::cuda
