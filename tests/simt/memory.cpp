// Memory of the CUDA runtime's double, and copies. The device's is the host's, each allocation
// between two guard zones that are looked at after every kernel.
#include "tests/simt/memory.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "tests/simt/host_keeps_out.h"
#include "tests/simt/stream.h"

namespace simt {
namespace {

constexpr size_t kGuard = 256;  // bytes; also what cudaMalloc aligns to
constexpr int kNothing = 0xff;  // every float of these bytes is NaN

/// Where each allocation begins, and its bytes.
using Allocations = std::map<std::byte*, size_t>;
Allocations& allocations() {
  static Allocations all;
  return all;
}
/// The same of the host's pinned memory.
Allocations& pinned() {
  static Allocations all;
  return all;
}

size_t bytes_left() {
  static const size_t all = from_environment("SIMT_MEMORY", SIZE_MAX);  // of a device
  size_t left = all;
  for (const auto& [memory, bytes] : allocations()) {
    left -= bytes;
  }
  return left;
}

/// The first byte of a guard zone that has been written, as an offset from its allocation.
std::string broken_guard(std::byte* memory, size_t bytes) {
  static const std::vector<std::byte> whole(kGuard, std::byte{kNothing});
  if (std::memcmp(memory - kGuard, whole.data(), kGuard) == 0 &&
      std::memcmp(memory + bytes, whole.data(), kGuard) == 0) {
    return {};
  }
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

/// Whether all these bytes are in one of the allocations.
bool within(const Allocations& allocations, const void* memory, size_t bytes) {
  auto* first = static_cast<std::byte*>(const_cast<void*>(memory));
  auto found = allocations.upper_bound(first);
  if (found == allocations.begin()) {
    return false;
  }
  --found;
  return first + bytes <= found->first + found->second;
}

/// cudaMemcpy(): "Calling cudaMemcpy() with dst and src pointers that do not match the direction of
/// the copy results in an undefined behavior"; here it is refused, as what reaches beyond an
/// allocation is. cudaErrorInvalidMemcpyDirection: "the direction [...] is not one of the types
/// specified by cudaMemcpyKind". The double knows those that this project uses.
cudaError_t accepts_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost &&
      kind != cudaMemcpyDeviceToDevice) {
    return cudaErrorInvalidMemcpyDirection;
  }
  const auto fits = [bytes](const void* memory, bool on_device) {
    return on_device ? is_device_memory(memory, bytes) : !is_device_memory(memory, 1);
  };
  return bytes == 0 || (fits(to, kind != cudaMemcpyDeviceToHost) &&
                        fits(from, kind != cudaMemcpyHostToDevice))
             ? cudaSuccess
             : cudaErrorInvalidValue;
}

}  // namespace

std::string broken_guards() {
  std::string report;
  for (const auto& [memory, bytes] : allocations()) {
    const std::string found =
        are_open(memory - kGuard) ? broken_guard(memory, bytes) : std::string();
    if (!found.empty()) {
      report = found;
      set_guards(memory, bytes);  // reported once
    }
  }
  return report;
}

bool is_device_memory(const void* memory, size_t bytes) {
  return within(allocations(), memory, bytes);
}

}  // namespace simt

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
  simt::allocations()[start + simt::kGuard] = bytes;
  *memory = start + simt::kGuard;
  return cudaSuccess;
}

/// cudaFree(): the pointer "must have been returned by a previous call to one of the following
/// memory allocation APIs [...] Otherwise, or if cudaFree(devPtr) has already been called before,
/// an error is returned. If devPtr is 0, no operation is performed." Programming Guide, "Stream
/// Ordered Memory Allocator": it "causes GPU to synchronize across all executing CUDA streams".
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t refused = simt::unsafe_call(); refused != cudaSuccess) {
    return refused;
  }
  auto* start = static_cast<std::byte*>(memory);
  if (!simt::allocations().contains(start)) {
    return simt::note(cudaErrorInvalidValue);
  }
  simt::count_wait();
  simt::run_all_pending();
  simt::allocations().erase(start);
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
  if (const cudaError_t refused = simt::accepts_copy(to, from, bytes, kind);
      refused != cudaSuccess) {
    return simt::note(refused);
  }
  const bool pageable =
      (kind == cudaMemcpyHostToDevice && !simt::within(simt::pinned(), from, bytes)) ||
      (kind == cudaMemcpyDeviceToHost && !simt::within(simt::pinned(), to, bytes));
  if (pageable && stream != nullptr && stream->capture != nullptr) {
    return simt::wait_call(stream);
  }
  return simt::enqueue(stream, [=] {
    const simt::DeviceAtWork at_work;
    if (bytes > 0) {
      std::memmove(to, from, bytes);
    }
  });
}
/// cudaMemset(): devPtr is a "pointer to device memory", of `count` bytes.
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (!simt::is_device_memory(memory, bytes)) {
    return simt::note(cudaErrorInvalidValue);
  }
  return simt::enqueue(stream, [=] {
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
  simt::pinned()[static_cast<std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}
/// cudaFreeHost(): the memory "must have been returned by a previous call to cudaMallocHost() or
/// cudaHostAlloc()".
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t refused = simt::unsafe_call(); refused != cudaSuccess) {
    return refused;
  }
  if (simt::pinned().erase(static_cast<std::byte*>(memory)) == 0) {
    return simt::note(cudaErrorInvalidValue);
  }
  std::free(memory);
  return cudaSuccess;
}
