#include "kernels/cuda/runtime.h"

#include <chrono>
#include <thread>
#include <utility>

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

namespace {

std::function<void()>& look() {
  static std::function<void()> instance;
  return instance;
}

}  // namespace

void watch_while_waiting(std::function<void()> watch) { look() = std::move(watch); }
bool is_watched() { return look() != nullptr; }

void synchronize() {
  constexpr auto kNotice = std::chrono::microseconds(20);  // a step takes a thousand times as long
  cudaError_t state = is_watched() ? cudaStreamQuery(stream()) : cudaStreamSynchronize(stream());
  while (state == cudaErrorNotReady) {
    look()();
    std::this_thread::sleep_for(kNotice);
    state = cudaStreamQuery(stream());
  }
  check_call(state, "waiting for the GPU");
}

}  // namespace headroom::kernels::cuda
