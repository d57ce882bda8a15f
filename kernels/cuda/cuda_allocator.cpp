#include "kernels/cuda/cuda_allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/cuda/runtime.h"
#include "tensor/check.h"

namespace headroom::kernels::cuda {

namespace {

/// cudaMalloc(), which a thread that records has to ask for in so many words (CUDA Runtime API,
/// cudaThreadExchangeStreamCaptureMode): the address it returns is good in every replay.
cudaError_t allocate_relaxed(void** memory, size_t size) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check_call(cudaThreadExchangeStreamCaptureMode(&mode), "allowing for memory in a recording");
  const cudaError_t error = cudaMalloc(memory, size);
  check_call(cudaThreadExchangeStreamCaptureMode(&mode), "going on with a recording");
  return error;
}

bool wants_cache() {
  const char* const variable = std::getenv("HEADROOM_CUDA_CACHE");
  const std::string value = variable == nullptr ? "1" : variable;
  check_input(value == "0" || value == "1", "HEADROOM_CUDA_CACHE is {}, but must be 0 or 1", value);
  return value == "1";
}

}  // namespace

CudaAllocator::~CudaAllocator() {
  for (const Staging& staging : staging_) {
    if (staging.memory != nullptr) {
      cudaEventDestroy(staging.read);
      cudaFreeHost(staging.memory);
    }
  }
  for (const auto& [memory, block] : blocks_) {
    cudaFree(memory);
  }
}

/// Up, so that near-equal requests share blocks: to what the driver aligns to, and to an eighth of
/// the power of two below from there on (at most 12.5 % waste).
size_t CudaAllocator::rounded(size_t bytes) const {
  constexpr size_t kAlignment = 256;
  const size_t size = std::max<size_t>(bytes, 1);
  const size_t step = caches_ ? std::max(kAlignment, std::bit_floor(size) / 8) : 1;
  return (size + step - 1) / step * step;
}

void* CudaAllocator::allocate(size_t bytes) {
  const size_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  void* memory = idle(recording_, size);
  if (memory == nullptr && recording_ != kEverybodys) {
    memory = idle(kEverybodys, size);
  }
  if (memory == nullptr) {
    memory = from_driver(size);
  }
  blocks_[memory].pool = recording_;
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return memory;
}

void CudaAllocator::free(void* memory, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
  const Block& block = blocks_[memory];
  if (caches_ || block.pool != kEverybodys || recording_ != kEverybodys) {
    idle_[{block.pool, block.size}].push_back(memory);
  } else {
    give_back(memory);
  }
}

/// A block that nobody has; nullptr if there is none.
void* CudaAllocator::idle(int64_t pool, size_t size) {
  std::vector<void*>& blocks = idle_[{pool, size}];
  if (blocks.empty()) {
    return nullptr;
  }
  void* memory = blocks.back();
  blocks.pop_back();
  return memory;
}

int64_t CudaAllocator::start_recording() {
  const std::lock_guard lock(mutex_);
  recording_ = ++pools_;
  return recording_;
}

void CudaAllocator::stop_recording() {
  const std::lock_guard lock(mutex_);
  recording_ = kEverybodys;
}

void CudaAllocator::give_up(int64_t pool) noexcept {
  const std::lock_guard lock(mutex_);
  recording_ = recording_ == pool ? kEverybodys : recording_;
  for (auto& [memory, block] : blocks_) {
    block.pool = block.pool == pool ? kEverybodys : block.pool;
  }
  const auto first = idle_.lower_bound({pool, 0}), last = idle_.lower_bound({pool + 1, 0});
  for (auto it = first; it != last; ++it) {
    std::vector<void*>& blocks = idle_[{kEverybodys, it->first.size}];
    blocks.insert(blocks.end(), it->second.begin(), it->second.end());
  }
  idle_.erase(first, last);
}

void* CudaAllocator::from_driver(size_t size) {
  void* memory = nullptr;
  cudaError_t error = allocate_relaxed(&memory, size);
  // Give back what is idle, where that may be, and try once more.
  if (error == cudaErrorMemoryAllocation && recording_ == kEverybodys) {
    cudaGetLastError();  // or the next launch would report it again
    synchronize();       // cudaFree() would wait too, but look at nothing meanwhile
    release_idle();
    error = cudaMalloc(&memory, size);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(fmt::format("[memory] the GPU has no {} more bytes; {} are in use", size, in_use_));
  }
  check_call(error, "asking for memory of the GPU");
  blocks_[memory] = {size, recording_};
  reserved_ += size;
  return memory;
}

/// cudaFree() waits for the device: no kernel still uses what is given back. It is not for steps
/// that are recorded.
void CudaAllocator::give_back(void* memory) noexcept {
  cudaFree(memory);
  reserved_ -= blocks_[memory].size;
  blocks_.erase(memory);
}

void CudaAllocator::release_idle() noexcept {
  for (auto& [pool, blocks] : idle_) {
    if (pool.number != kEverybodys) {
      continue;
    }
    for (void* block : blocks) {
      give_back(block);
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
  check(!recording() || to_device == from_device,
        "[cuda] a step that is recorded can't copy from or to the host: a replay would not");
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
  const std::lock_guard lock(mutex_);
  for (size_t done = 0, piece = 0; done < bytes; done += piece) {
    Staging& staging = staging_with_room();
    piece = std::min(bytes - done, kStagingBytes - staging.filled);
    std::byte* const place = staging.memory + staging.filled;
    std::memcpy(place, static_cast<const std::byte*>(from) + done, piece);
    check_call(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, place, piece,
                               cudaMemcpyHostToDevice, stream()),
               "copying to the GPU");
    staging.filled += piece;
  }
}

/// The area whose turn it is; where that is full, the other one, once the GPU has read it.
CudaAllocator::Staging& CudaAllocator::staging_with_room() {
  if (staging_[filling_].filled == kStagingBytes) {
    check_call(cudaEventRecord(staging_[filling_].read, stream()), "recording an event");
    filling_ = 1 - filling_;
    staging_[filling_].filled = 0;
    if (staging_[filling_].memory != nullptr) {
      wait_for(staging_[filling_].read);
    }
  }
  Staging& staging = staging_[filling_];
  if (staging.memory == nullptr) {
    void* memory = nullptr;
    check_call(cudaEventCreateWithFlags(&staging.read, cudaEventDisableTiming), "making an event");
    check_call(cudaMallocHost(&memory, kStagingBytes), "pinning memory of the host");
    staging.memory = static_cast<std::byte*>(memory);
  }
  return staging;
}

bool CudaAllocator::recording() const {
  const std::lock_guard lock(mutex_);
  return recording_ != kEverybodys;
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

CudaAllocator& gpu_memory() {
  static auto* instance = new CudaAllocator(wants_cache());
  return *instance;
}

}  // namespace headroom::kernels::cuda
