// Memory of a GPU, kept by size and handed out again in the order of the stream.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "tensor/allocator.h"

namespace headroom::kernels::cuda {

/// Freed memory is handed out again at once, while kernels that use it may still be waiting to run:
/// whatever its next owner does comes after them in the one stream. A training step asks for the
/// same sizes in the same order each time, so a steady step never reaches the driver.
///
/// What a recorded step asked for is in a pool of its own: its kernels will use these addresses
/// again.
///
/// Without the cache each tensor has memory of exactly its size, which goes back to the driver with
/// it: slow, but whoever watches the driver's memory (compute-sanitizer, tests/simt) then sees what
/// kernels do beyond a tensor's end, or after it.
class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(bool caches = true) : caches_(caches) {}
  CudaAllocator(const CudaAllocator&) = delete;
  CudaAllocator& operator=(const CudaAllocator&) = delete;
  /// Gives everything back, what is still in use too.
  ~CudaAllocator() override;

  void* allocate(size_t bytes) override;
  void free(void* memory, size_t bytes) noexcept override;
  void zero(void* memory, size_t bytes) override;
  /// To the host: done on return. From the host: read on return, in the GPU's memory by the time
  /// that what is asked of it next runs.
  void copy(void* to, Device to_device, const void* from, Device from_device,
            size_t bytes) override;

  /// Until stop_recording(), memory that is asked for becomes the new pool's, whose number is
  /// returned, and copies from or to the host throw: they would not be made again.
  int64_t start_recording();
  void stop_recording();
  /// The recording is over or came to nothing: its memory is everybody's, once it is free.
  void give_up(int64_t pool) noexcept;

  size_t bytes_in_use() const override;
  size_t peak_bytes() const override;
  size_t bytes_reserved() const override;

 private:
  /// Memory of the host that the GPU reads by itself. Copies fill one of two such areas while those
  /// of the other are made: the host waits only where it is a whole area ahead of the GPU.
  struct Staging {
    std::byte* memory = nullptr;
    cudaEvent_t read = nullptr;  // what was in it when the other one's turn came
    size_t filled = 0;
  };
  static constexpr size_t kStagingBytes = size_t{4} << 20;  // 512 x 1024 tokens and their targets

  static constexpr int64_t kEverybodys = 0;
  struct Block {
    size_t size;
    int64_t pool;
  };
  struct Pool {
    int64_t number;
    size_t size;
    auto operator<=>(const Pool&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  bool recording() const;
  size_t rounded(size_t bytes) const;
  void* idle(int64_t pool, size_t size);
  void* from_driver(size_t size);
  void give_back(void* memory) noexcept;
  void release_idle() noexcept;
  void copy_from_host(void* to, const void* from, size_t bytes);
  Staging& staging_with_room();

  const bool caches_;
  mutable std::mutex mutex_;
  std::map<void*, Block> blocks_;            // all that is the driver's
  std::map<Pool, std::vector<void*>> idle_;  // by pool and rounded size
  int64_t recording_ = kEverybodys;          // the pool of the recording under way
  int64_t pools_ = 0;                        // made so far
  std::array<Staging, 2> staging_;
  size_t filling_ = 0;  // which of them
  size_t in_use_ = 0, peak_ = 0, reserved_ = 0;
};

/// The GPU's, which outlives every tensor. The environment variable HEADROOM_CUDA_CACHE=0 makes it
/// one without the cache.
CudaAllocator& gpu_memory();

}  // namespace headroom::kernels::cuda
