#include "kernels/cuda/runtime.h"

#include "tensor/check.h"

namespace headroom::kernels::cuda {

void check_call(cudaError_t error, const char* what) {
  check(error == cudaSuccess, "[cuda] {} failed: {}", what, cudaGetErrorString(error));
}

cudaStream_t stream() {
  static const cudaStream_t instance = [] {
    cudaStream_t made = nullptr;
    check_call(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream");
    return made;
  }();
  return instance;
}

void synchronize() { check_call(cudaStreamSynchronize(stream()), "waiting for the GPU"); }

}  // namespace headroom::kernels::cuda
