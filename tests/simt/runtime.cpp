// The CUDA runtime's double: devices, streams, events and errors. Its memory is in memory.cpp, its
// launches in launch.cpp, stream capture in graph.cpp.
//
// A stream that was made does its copies as late as it may: when something waits for it, or a
// kernel comes after them. Who reads too early, or reuses the source of a copy, sees it.
#include <cuda_runtime.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "tests/simt/host_keeps_out.h"
#include "tests/simt/launch.h"
#include "tests/simt/stream.h"

namespace simt {
namespace {

struct Runtime {
  cudaError_t last_error = cudaSuccess;
  unsigned waits = 0;
  int devices = static_cast<int>(from_environment("SIMT_DEVICES", 1));
  std::set<cudaStream_t> streams;
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

}  // namespace

void run_until(cudaStream_t stream, size_t until) {
  const DeviceAtWork at_work;
  while (stream->done < until && !stream->pending.empty()) {
    stream->pending.front()();
    stream->pending.pop_front();
    ++stream->done;
  }
}

cudaError_t note(cudaError_t error) {
  runtime().last_error = error == cudaSuccess ? runtime().last_error : error;
  return error;
}

size_t from_environment(const char* variable, size_t usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

void set_device_count(int count) { runtime().devices = count; }
unsigned waits() { return runtime().waits; }
void count_wait() { ++runtime().waits; }

void run_pending(cudaStream_t stream) {
  if (stream != nullptr) {
    run_until(stream, stream->done + stream->pending.size());
  }
}

void run_all_pending() {
  for (const cudaStream_t stream : runtime().streams) {
    run_pending(stream);
  }
}

/// The default stream waits for nothing: what it is asked for is done at once.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr) {
    const cudaError_t refused = legacy_stream_call();
    if (refused == cudaSuccess) {
      work();
    }
    return refused;
  }
  if (stream->capture != nullptr) {
    return capture(stream, [work] {
      work();
      return cudaSuccess;
    });
  }
  stream->pending.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t run_in_order(cudaStream_t stream, const std::function<cudaError_t()>& work) {
  if (stream != nullptr && stream->capture != nullptr) {
    return capture(stream, work);
  }
  if (const cudaError_t refused = stream == nullptr ? legacy_stream_call() : cudaSuccess;
      refused != cudaSuccess) {
    return refused;
  }
  run_pending(stream);
  return work();
}

}  // namespace simt

/// "cudaErrorNoDevice: no CUDA-capable devices were detected by the installed CUDA driver."
cudaError_t cudaGetDeviceCount(int* count) {
  *count = simt::runtime().devices;
  return *count > 0 ? cudaSuccess : simt::note(cudaErrorNoDevice);
}
/// cudaSetDevice(): device is one "on which the active host thread should execute the device code",
/// of those that cudaGetDeviceCount() counts; or else cudaErrorInvalidDevice.
cudaError_t cudaSetDevice(int index) {
  return index >= 0 && index < simt::runtime().devices ? cudaSuccess
                                                       : simt::note(cudaErrorInvalidDevice);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = new CUstream_st{.blocking = flags != cudaStreamNonBlocking, .pending = {}};
  simt::runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t refused = simt::wait_call(stream); refused != cudaSuccess) {
    return refused;
  }
  simt::count_wait();
  simt::run_pending(stream);
  return cudaSuccess;
}
/// cudaStreamQuery(): cudaErrorNotReady as long as not all is done, as here when it is first asked.
/// It is no error that cudaGetLastError() would report.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t refused = simt::wait_call(stream); refused != cudaSuccess) {
    return refused;
  }
  if (stream != nullptr && !stream->pending.empty()) {
    simt::run_pending(stream);
    return cudaErrorNotReady;
  }
  simt::count_wait();
  return cudaSuccess;
}
/// Programming Guide, "Creation and Destruction of Streams": what is still pending is done first.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  simt::run_pending(stream);
  simt::runtime().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t refused = stream == nullptr ? simt::legacy_stream_call() : cudaSuccess;
      refused != cudaSuccess) {
    return refused;
  }
  *event = stream == nullptr
               ? CUevent_st{}
               : CUevent_st{stream, stream->done + stream->pending.size(), stream->capture.get()};
  return cudaSuccess;
}
/// "It is invalid to synchronize or query [...] a captured event." (Prohibited and Unhandled
/// Operations)
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured != nullptr) {
    return simt::note(cudaErrorCapturedEvent);
  }
  if (event->stream != nullptr && event->stream->done < event->after) {
    simt::run_until(event->stream, event->after);
    return cudaErrorNotReady;
  }
  simt::count_wait();
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(simt::runtime().last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalState:
      return "the operation cannot be performed in the present state";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorLaunchFailure:
      return simt::launch_report().c_str();
  }
  return "unrecognized error code";
}
