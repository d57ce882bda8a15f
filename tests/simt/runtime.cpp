// The CUDA runtime's double. Device memory is the host's, each allocation between two guard zones
// that are looked at after every kernel.
//
// A stream that was made does its copies as late as it may: when something waits for it, or a
// kernel comes after them. Who reads too early, or reuses the source of a copy, sees it.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "tests/simt/host_keeps_out.h"
#include "tests/simt/scheduler.h"
#include "tests/simt/stream.h"

namespace simt {
namespace {

constexpr size_t kGuard = 256;  // bytes; also what cudaMalloc aligns to
constexpr int kNothing = 0xff;  // every float of these bytes is NaN
constexpr size_t kMostWithoutAsking = size_t{48} << 10;
constexpr size_t kMostShared = size_t{227} << 10;  // sm_90: Programming Guide, table of features

/// How a program that runs on the doubles is told of its machine.
size_t from_environment(const char* variable, size_t usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

struct Runtime {
  std::map<std::byte*, size_t> allocations;  // where each begins, and its bytes
  std::map<std::byte*, size_t> pinned;       // the same of the host's memory
  std::map<const void*, size_t> shared_limits;
  cudaError_t last_error = cudaSuccess;
  std::string report;  // of the kernel that failed
  unsigned launches = 0;
  unsigned waits = 0;
  int devices = static_cast<int>(from_environment("SIMT_DEVICES", 1));
  size_t memory = from_environment("SIMT_MEMORY", SIZE_MAX);  // bytes of a device
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

size_t bytes_left() {
  size_t left = runtime().memory;
  for (const auto& [memory, bytes] : runtime().allocations) {
    left -= bytes;
  }
  return left;
}

/// The first byte of a guard zone that has been written, as an offset from its allocation.
std::string broken_guard(std::byte* memory, size_t bytes) {
  for (size_t i = 0; i < kGuard; ++i) {
    if (memory[bytes + i] != std::byte{kNothing}) {
      return fmt::format(
          "out of bounds: wrote global memory at offset {} of an allocation of {} bytes", bytes + i,
          bytes);
    }
    if (memory[-1 - static_cast<std::ptrdiff_t>(i)] != std::byte{kNothing}) {
      return fmt::format("out of bounds: wrote global memory at offset -{} of an allocation",
                         i + 1);
    }
  }
  return {};
}

void set_guards(std::byte* memory, size_t bytes) {
  std::memset(memory - kGuard, kNothing, kGuard);
  std::memset(memory + bytes, kNothing, kGuard);
}

std::string broken_guards() {
  std::string report;
  for (const auto& [memory, bytes] : runtime().allocations) {
    const std::string found = broken_guard(memory, bytes);
    if (!found.empty()) {
      report = found;
      set_guards(memory, bytes);  // reported once
    }
  }
  return report;
}

/// Limits of a launch: CUDA C++ Programming Guide, "Compute Capabilities", technical
/// specifications (1024 threads, z up to 64; grids of 2^31 - 1, 65535, 65535).
bool is_valid(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const auto asked = runtime().shared_limits.find(kernel);
  const size_t most = asked == runtime().shared_limits.end() ? kMostWithoutAsking : asked->second;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffU && grid.y <= 65535 &&
         grid.z <= 65535 && block.x > 0 && block.y > 0 && block.z > 0 && block.z <= 64 &&
         static_cast<size_t>(block.x) * block.y * block.z <= 1024 &&
         config.dynamicSmemBytes <= most;
}

/// The default stream waits for nothing: what it is asked for is done at once.
cudaError_t ask(cudaStream_t stream, const std::function<void()>& work) {
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
  stream->pending.push_back(work);
  return cudaSuccess;
}

/// Whether all these bytes are in one of the allocations.
bool within(const std::map<std::byte*, size_t>& allocations, const void* memory, size_t bytes) {
  auto* first = static_cast<std::byte*>(const_cast<void*>(memory));
  auto found = allocations.upper_bound(first);
  if (found == allocations.begin()) {
    return false;
  }
  --found;
  return first + bytes <= found->first + found->second;
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

void set_device_count(int count) { runtime().devices = count; }
unsigned waits() { return runtime().waits; }

void run_pending(cudaStream_t stream) {
  if (stream != nullptr) {
    run_until(stream, stream->done + stream->pending.size());
  }
}

void enqueue(cudaStream_t stream, std::function<void()> work) { ask(stream, std::move(work)); }

bool is_device_memory(const void* memory, size_t bytes) {
  return within(runtime().allocations, memory, bytes);
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

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   const std::function<void()>& thread) {
  if (!is_valid(config, kernel)) {
    return note(cudaErrorInvalidConfiguration);
  }
  return run_in_order(config.stream, [config, thread] {
    Runtime& r = runtime();
    const DeviceAtWork at_work;
    r.report = run(config.gridDim, config.blockDim, config.dynamicSmemBytes, thread, r.launches++);
    if (r.report.empty()) {
      r.report = broken_guards();
    }
    return r.report.empty() ? cudaSuccess : note(cudaErrorLaunchFailure);
  });
}

}  // namespace simt

/// "cudaErrorNoDevice: no CUDA-capable devices were detected by the installed CUDA driver."
cudaError_t cudaGetDeviceCount(int* count) {
  *count = simt::runtime().devices;
  return *count > 0 ? cudaSuccess : simt::note(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int index) {
  return index >= 0 && index < simt::runtime().devices ? cudaSuccess
                                                       : simt::note(cudaErrorInvalidDevice);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t refused = simt::unsafe_call(); refused != cudaSuccess) {
    return refused;
  }
  if (bytes > simt::bytes_left()) {
    return simt::note(cudaErrorMemoryAllocation);
  }
  const size_t all = (bytes + 3 * simt::kGuard - 1) / simt::kGuard * simt::kGuard;
  const simt::DeviceAtWork at_work;
  auto* start = static_cast<std::byte*>(simt::take_pages(all));
  if (start == nullptr) {
    return simt::note(cudaErrorMemoryAllocation);
  }
  std::memset(start, simt::kNothing, all);
  simt::runtime().allocations[start + simt::kGuard] = bytes;
  *memory = start + simt::kGuard;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t refused = simt::unsafe_call(); refused != cudaSuccess) {
    return refused;
  }
  ++simt::runtime().waits;
  auto* start = static_cast<std::byte*>(memory);
  if (simt::runtime().allocations.erase(start) == 0) {
    return simt::note(cudaErrorInvalidValue);
  }
  simt::give_back_pages(start - simt::kGuard);
  return cudaSuccess;
}

/// Synchronous calls use the legacy stream (Programming Guide, "Prohibited and Unhandled
/// Operations").
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
/// CUDA Runtime API, "API synchronization behavior", "Asynchronous": between the device and
/// pageable memory "the driver may synchronize with the stream", which a captured one can't be.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool pageable =
      (kind == cudaMemcpyHostToDevice && !simt::within(simt::runtime().pinned, from, bytes)) ||
      (kind == cudaMemcpyDeviceToHost && !simt::within(simt::runtime().pinned, to, bytes));
  if (pageable && stream != nullptr && stream->capture != nullptr) {
    return simt::wait_call(stream);
  }
  return simt::ask(stream, [=] {
    const simt::DeviceAtWork at_work;
    if (bytes > 0) {
      std::memmove(to, from, bytes);
    }
  });
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return simt::ask(stream, [=] {
    const simt::DeviceAtWork at_work;
    std::memset(memory, value, bytes);
  });
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (const cudaError_t refused = simt::unsafe_call(); refused != cudaSuccess) {
    return refused;
  }
  *memory = std::malloc(bytes);
  if (*memory == nullptr) {
    return simt::note(cudaErrorMemoryAllocation);
  }
  simt::runtime().pinned[static_cast<std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t refused = simt::unsafe_call(); refused != cudaSuccess) {
    return refused;
  }
  simt::runtime().pinned.erase(static_cast<std::byte*>(memory));
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = new CUstream_st{.blocking = flags != cudaStreamNonBlocking, .pending = {}};
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t refused = simt::wait_call(stream); refused != cudaSuccess) {
    return refused;
  }
  ++simt::runtime().waits;
  simt::run_pending(stream);
  return cudaSuccess;
}
/// cudaStreamQuery(): cudaErrorNotReady as long as not all is done, as here when it is first asked.
/// It is no error that cudaGetLastError() would report.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t refused = simt::wait_call(stream); refused != cudaSuccess) {
    return refused;
  }
  const bool ready = stream == nullptr || stream->pending.empty();
  simt::run_pending(stream);
  return ready ? cudaSuccess : cudaErrorNotReady;
}
/// Programming Guide, "Creation and Destruction of Streams": what is still pending is done first.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  simt::run_pending(stream);
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
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured != nullptr) {
    return simt::note(cudaErrorCapturedEvent);
  }
  ++simt::runtime().waits;
  if (event->stream != nullptr) {
    simt::run_until(event->stream, event->after);
  }
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
      return simt::runtime().report.c_str();
  }
  return "unrecognized error code";
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > simt::kMostShared) {
    return simt::note(cudaErrorInvalidValue);
  }
  simt::runtime().shared_limits[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
