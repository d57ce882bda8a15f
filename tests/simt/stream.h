// Streams and captures, for the parts of the runtime's double.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace simt {

/// A stream's capture under way.
struct Capture {
  cudaStreamCaptureMode mode;
  bool valid = true;
  std::vector<std::function<cudaError_t()>> nodes;
};

/// How a program that runs on the doubles is told of its machine.
size_t from_environment(const char* variable, size_t usual);
/// Counts one more of waits().
void count_wait();
/// Does the oldest things asked of a stream until `until` of all are done.
void run_until(cudaStream_t stream, size_t until);
/// Does all that was asked of any stream.
void run_all_pending();
/// Makes `error` the last one.
cudaError_t note(cudaError_t error);
/// Where the stream is captured: makes `node` one of the graph, or says why not.
cudaError_t capture(cudaStream_t stream, std::function<cudaError_t()> node);
/// What the rules of stream capture have against a call that is "potentially unsafe", or needs the
/// legacy stream; cudaSuccess if nothing.
cudaError_t unsafe_call();
cudaError_t legacy_stream_call();
/// The same for a call that asks what a stream has done.
cudaError_t wait_call(cudaStream_t stream);

}  // namespace simt

struct CUstream_st {
  bool blocking = false;  // waits for the legacy stream, and the legacy stream for it
  std::deque<std::function<void()>> pending;
  size_t done = 0;  // of all that it was asked for
  std::unique_ptr<simt::Capture> capture = nullptr;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;  // null: never recorded
  size_t after = 0;               // so many things
  const simt::Capture* captured = nullptr;
};
