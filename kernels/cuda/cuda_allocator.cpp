#include "kernels/cuda/cuda_allocator.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cuda/runtime.h"
#include "tensor/check.h"

namespace headroom::kernels::cuda {

namespace {

/// Sizes are rounded up so that near-equal requests share blocks: to what the driver aligns to, and
/// to an eighth of the power of two below from there on (at most 12.5 % waste).
size_t rounded(size_t bytes) {
  constexpr size_t kAlignment = 256;
  const size_t size = std::max<size_t>(bytes, 1);
  const size_t step = std::max(kAlignment, std::bit_floor(size) / 8);
  return (size + step - 1) / step * step;
}

}  // namespace

CudaAllocator::~CudaAllocator() {
  for (const Staging& staging : staging_) {
    if (staging.memory != nullptr) {
      cudaEventDestroy(staging.read);
      cudaFreeHost(staging.memory);
    }
  }
  for (const auto& [memory, size] : blocks_) {
    cudaFree(memory);
  }
}

void* CudaAllocator::allocate(size_t bytes) {
  const size_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (std::vector<void*>& blocks = idle_[size]; !blocks.empty()) {
    memory = blocks.back();
    blocks.pop_back();
  } else {
    memory = from_driver(size);
  }
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return memory;
}

void CudaAllocator::free(void* memory, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
  idle_[rounded(bytes)].push_back(memory);
}

void* CudaAllocator::from_driver(size_t size) {
  void* memory = nullptr;
  cudaError_t error = cudaMalloc(&memory, size);
  if (error == cudaErrorMemoryAllocation) {  // give back what is idle and try once more
    cudaGetLastError();                      // or the next launch would report it again
    release_idle();
    error = cudaMalloc(&memory, size);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(fmt::format("[memory] the GPU has no {} more bytes; {} are in use", size, in_use_));
  }
  check_call(error, "asking for memory of the GPU");
  blocks_[memory] = size;
  reserved_ += size;
  return memory;
}

/// cudaFree() waits for the device: no kernel still uses what is given back.
void CudaAllocator::release_idle() noexcept {
  for (auto& [size, blocks] : idle_) {
    for (void* block : blocks) {
      cudaFree(block);
      blocks_.erase(block);
      reserved_ -= size;
    }
    blocks.clear();
  }
}

void CudaAllocator::zero(void* memory, size_t bytes) {
  if (bytes > 0) {
    check_call(cudaMemsetAsync(memory, 0, bytes, stream()), "writing zeros");
  }
}

void CudaAllocator::copy(void* to, Device to_device, const void* from, Device from_device,
                         size_t bytes) {
  if (bytes == 0) {
    return;
  }
  if (from_device == kCpu) {
    copy_from_host(to, from, bytes);
    return;
  }
  const bool to_host = to_device == kCpu;
  if (to_host && is_watched()) {
    synchronize();  // cudaMemcpyAsync to pageable memory would itself wait, and look at nothing
  }
  check_call(cudaMemcpyAsync(to, from, bytes,
                             to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice, stream()),
             "copying memory of the GPU");
  if (to_host) {
    synchronize();
  }
}

void CudaAllocator::copy_from_host(void* to, const void* from, size_t bytes) {
  if (bytes > kStagingBytes) {
    check_call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()),
               "copying to the GPU");
    synchronize();
    return;
  }
  const std::lock_guard lock(mutex_);
  Staging& staging = staging_[next_staging_];
  next_staging_ = (next_staging_ + 1) % staging_.size();
  if (staging.memory == nullptr) {
    check_call(cudaEventCreateWithFlags(&staging.read, cudaEventDisableTiming), "making an event");
    check_call(cudaMallocHost(&staging.memory, kStagingBytes), "pinning memory of the host");
  } else {
    check_call(cudaEventSynchronize(staging.read), "waiting for an earlier copy");
  }
  std::memcpy(staging.memory, from, bytes);
  check_call(cudaMemcpyAsync(to, staging.memory, bytes, cudaMemcpyHostToDevice, stream()),
             "copying to the GPU");
  check_call(cudaEventRecord(staging.read, stream()), "recording an event");
}

size_t CudaAllocator::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}
size_t CudaAllocator::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}
size_t CudaAllocator::bytes_reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

}  // namespace headroom::kernels::cuda
