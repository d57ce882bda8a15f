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

template <class Query>
void look_until_ready(const Query& query, const char* what) {
  constexpr auto kNotice = std::chrono::microseconds(20);  // a step takes a thousand times as long
  cudaError_t state = query();
  while (state == cudaErrorNotReady) {
    if (is_watched()) {
      look()();
    }
    std::this_thread::sleep_for(kNotice);
    state = query();
  }
  check_call(state, what);
}

}  // namespace

void watch_while_waiting(std::function<void()> watch) { look() = std::move(watch); }
bool is_watched() { return look() != nullptr; }

void synchronize() {
  constexpr const char* kWhat = "waiting for the GPU";
  if (is_watched()) {
    look_until_ready([] { return cudaStreamQuery(stream()); }, kWhat);
  } else {
    check_call(cudaStreamSynchronize(stream()), kWhat);
  }
}

void wait_for(cudaEvent_t event) {
  look_until_ready([event] { return cudaEventQuery(event); }, "waiting for an event");
}

}  // namespace headroom::kernels::cuda
