// The CPU's allocator keeps freed blocks by size and hands them out again: a training step asks for
// the same sizes in the same order each time, so a steady step never reaches the system.
#include "tensor/allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tensor/check.h"

namespace headroom {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr size_t kAlignment = 64;

/// Sizes are rounded up so that near-equal requests share blocks: to 64 bytes, and to an eighth of
/// the power of two below from there on (at most 12.5 % waste).
size_t rounded(size_t bytes) {
  const size_t step = std::max(kAlignment, std::bit_floor(std::max<size_t>(bytes, 1)) / 8);
  return (std::max<size_t>(bytes, 1) + step - 1) / step * step;
}

class CpuAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    const size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    if (auto it = free_.find(size); it != free_.end() && !it->second.empty()) {
      void* memory = it->second.back();
      it->second.pop_back();
      return memory;
    }
    void* memory = from_system(size);
    if (memory == nullptr) {  // give back what is idle and try once more
      release_idle();
      memory = from_system(size);
    }
    if (memory == nullptr) {
      in_use_ -= bytes;
      throw Error(
          fmt::format("[memory] the system has no {} more bytes; {} are in use", size, in_use_));
    }
    return memory;
  }

  void free(void* memory, size_t bytes) noexcept override {
    const size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    if (kSanitized) {  // a recycled block would hide a use after free
      reserved_ -= size;
      std::free(memory);
      return;
    }
    free_[size].push_back(memory);
  }

  void zero(void* memory, size_t bytes) override { std::memset(memory, 0, bytes); }

  void copy(void* to, Device, const void* from, Device, size_t bytes) override {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
  }

  size_t bytes_in_use() const override {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }
  size_t peak_bytes() const override {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  size_t bytes_reserved() const override {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }

 private:
  void* from_system(size_t size) {
    void* memory = std::aligned_alloc(kAlignment, size);
    if (memory != nullptr) {
      reserved_ += size;
      if (kSanitized) {
        std::memset(memory, 0xff, size);  // NaN: what is read before it is written shows
      }
    }
    return memory;
  }

  void release_idle() {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) {
        std::free(block);
        reserved_ -= size;
      }
      blocks.clear();
    }
  }

  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  size_t in_use_ = 0, peak_ = 0, reserved_ = 0;
};

// Never destroyed: tensors with static lifetime may be freed after it would be.
Allocator& cpu_allocator() {
  static auto* instance = new CpuAllocator;
  return *instance;
}

std::array<Allocator*, 2>& installed() {
  static std::array<Allocator*, 2> allocators{&cpu_allocator(), nullptr};
  return allocators;
}

}  // namespace

Allocator& allocator(Device device) {
  Allocator* found = installed()[static_cast<size_t>(device.type)];
  check(found != nullptr, "[memory] this program has no backend for {}", name_of(device));
  return *found;
}

void install_allocator(Device::Type type, Allocator& allocator) {
  installed()[static_cast<size_t>(type)] = &allocator;
}

}  // namespace headroom
