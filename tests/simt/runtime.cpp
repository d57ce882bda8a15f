// The CUDA runtime's double. Device memory is the host's, each allocation between two guard zones
// that are looked at after every kernel.
//
// A stream that was made does its copies as late as it may: when something waits for it, or a
// kernel comes after them. Who reads too early, or reuses the source of a copy, sees it.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "cuda_host_api.h"
#include "tests/simt/host_keeps_out.h"
#include "tests/simt/scheduler.h"

struct CUstream_st {
  std::deque<std::function<void()>> pending;
  size_t done = 0;  // of all that it was asked for
};
struct CUevent_st {
  CUstream_st* stream = nullptr;  // null: never recorded
  size_t after = 0;               // so many things
};

namespace simt {
namespace {

constexpr size_t kGuard = 256;  // bytes; also what cudaMalloc aligns to
constexpr int kNothing = 0xff;  // every float of these bytes is NaN
constexpr size_t kMostWithoutAsking = size_t{48} << 10;
constexpr size_t kMostShared = size_t{227} << 10;  // sm_90: Programming Guide, table of features

/// For a program on the doubles: what set_device_count() is for tests.
int count_from_environment() {
  const char* text = std::getenv("SIMT_DEVICES");
  return text == nullptr ? 1 : std::atoi(text);
}

struct Runtime {
  std::map<std::byte*, size_t> allocations;  // where each begins, and its bytes
  std::map<const void*, size_t> shared_limits;
  cudaError_t last_error = cudaSuccess;
  std::string report;  // of the kernel that failed
  unsigned launches = 0;
  int devices = count_from_environment();

  cudaError_t note(cudaError_t error) {
    last_error = error == cudaSuccess ? last_error : error;
    return error;
  }
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
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

/// Does the oldest things asked of a stream until `until` of all are done.
void run_until(cudaStream_t stream, size_t until) {
  const DeviceAtWork at_work;
  while (stream->done < until && !stream->pending.empty()) {
    stream->pending.front()();
    stream->pending.pop_front();
    ++stream->done;
  }
}

/// The default stream waits for nothing: what it is asked for is done at once.
cudaError_t ask(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr) {
    work();
  } else {
    stream->pending.push_back(std::move(work));
  }
  return cudaSuccess;
}

}  // namespace

void set_device_count(int count) { runtime().devices = count; }

void run_pending(cudaStream_t stream) {
  if (stream != nullptr) {
    run_until(stream, stream->done + stream->pending.size());
  }
}

void enqueue(cudaStream_t stream, std::function<void()> work) { ask(stream, std::move(work)); }

bool is_device_memory(const void* memory, size_t bytes) {
  auto* first = static_cast<std::byte*>(const_cast<void*>(memory));
  const auto next = runtime().allocations.upper_bound(first);
  if (next == runtime().allocations.begin()) {
    return false;
  }
  const auto& [start, size] = *std::prev(next);
  return first + bytes <= start + size;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   const std::function<void()>& thread) {
  Runtime& r = runtime();
  if (!is_valid(config, kernel)) {
    return r.note(cudaErrorInvalidConfiguration);
  }
  run_pending(config.stream);
  const DeviceAtWork at_work;
  r.report = run(config.gridDim, config.blockDim, config.dynamicSmemBytes, thread, r.launches++);
  if (r.report.empty()) {
    r.report = broken_guards();
  }
  return r.report.empty() ? cudaSuccess : r.note(cudaErrorLaunchFailure);
}

}  // namespace simt

/// "cudaErrorNoDevice: no CUDA-capable devices were detected by the installed CUDA driver."
cudaError_t cudaGetDeviceCount(int* count) {
  *count = simt::runtime().devices;
  return *count > 0 ? cudaSuccess : simt::runtime().note(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int index) {
  return index >= 0 && index < simt::runtime().devices
             ? cudaSuccess
             : simt::runtime().note(cudaErrorInvalidDevice);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const size_t all = (bytes + 3 * simt::kGuard - 1) / simt::kGuard * simt::kGuard;
  const simt::DeviceAtWork at_work;
  auto* start = static_cast<std::byte*>(simt::take_pages(all));
  if (start == nullptr) {
    return simt::runtime().note(cudaErrorMemoryAllocation);
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
  auto* start = static_cast<std::byte*>(memory);
  if (simt::runtime().allocations.erase(start) == 0) {
    return simt::runtime().note(cudaErrorInvalidValue);
  }
  simt::give_back_pages(start - simt::kGuard);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  const simt::DeviceAtWork at_work;
  if (bytes > 0) {
    std::memmove(to, from, bytes);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return simt::ask(stream, [=] { cudaMemcpy(to, from, bytes, kind); });
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  const simt::DeviceAtWork at_work;
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return simt::ask(stream, [=] { cudaMemset(memory, value, bytes); });
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? simt::runtime().note(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  simt::run_pending(stream);
  return cudaSuccess;
}
/// cudaStreamQuery(): cudaErrorNotReady as long as not all is done, as here when it is first asked.
/// It is no error that cudaGetLastError() would report.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
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
  *event =
      stream == nullptr ? CUevent_st{} : CUevent_st{stream, stream->done + stream->pending.size()};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->stream != nullptr) {
    simt::run_until(event->stream, event->after);
  }
  return cudaSuccess;
}
/// cudaStreamWaitEvent(): the stream waits for what the event stands for now; recording the event
/// anew later changes nothing. The host doesn't wait.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (event->stream == nullptr) {
    return cudaSuccess;
  }
  return simt::ask(stream, [mark = *event] { simt::run_until(mark.stream, mark.after); });
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
    case cudaErrorLaunchFailure:
      return simt::runtime().report.c_str();
  }
  return "unrecognized error code";
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > simt::kMostShared) {
    return simt::runtime().note(cudaErrorInvalidValue);
  }
  simt::runtime().shared_limits[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
