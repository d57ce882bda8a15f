// The CPU's allocator keeps freed blocks by size and hands them out again: a training step asks for
// the same sizes in the same order each time, so a steady step never reaches the system. What it
// takes from the system it asks for in pages of 2 MiB: streaming over weights in pages of 4 KiB
// waits for addresses, and reached 35 of 63 GB/s on a virtual server.
#include "tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
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

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

/// Sizes are rounded up so that near-equal requests share blocks: to 64 bytes, and to an eighth of
/// the power of two below from there on (at most 12.5 % waste).
size_t rounded(size_t bytes) {
  const size_t step = std::max(kAlignment, std::bit_floor(std::max<size_t>(bytes, 1)) / 8);
  return round_up(std::max<size_t>(bytes, 1), step);
}

/// Numbers the rounded sizes: the multiples of 64 below 512, then eight for each power of two.
size_t class_of(size_t rounded_size) {
  constexpr int kEighths = 8, kFirstPower = 9;
  const int width = std::bit_width(rounded_size);
  const int power = width > kFirstPower ? width - 1 : kFirstPower;
  return static_cast<size_t>(kEighths * (power - kFirstPower)) + (rounded_size >> (power - 3));
}
constexpr size_t kClasses = 448;  // of 64-bit sizes

/// Blocks cut one after another from large mappings, so that small tensors share large pages; a
/// block as large as a good part of a mapping has one to itself.
class Mappings {
 public:
  /// Memory of zeros, or nullptr.
  void* take(size_t size) {
    if (size >= kExtent / 4) {
      return map(round_up(size, kPage));
    }
    if (size > left_) {
      auto* extent = static_cast<std::byte*>(map(kExtent));
      if (extent == nullptr) {  // there may be room for less
        return map(round_up(size, kPage));
      }
      next_ = extent;
      left_ = kExtent;
    }
    left_ -= size;
    return std::exchange(next_, next_ + size);
  }

  /// Gives a block's pages back, but for those it shares with its neighbours; its addresses are not
  /// used again.
  static void give_back(void* block, size_t size) {
    const auto at = reinterpret_cast<uintptr_t>(block);
    const uintptr_t begin = round_up(at, kPage), end = (at + size) / kPage * kPage;
    if (begin < end) {
      munmap(static_cast<std::byte*>(block) + (begin - at), end - begin);
    }
  }

 private:
  static constexpr size_t kPage = size_t{64} << 10;  // a multiple of the processor's
  static constexpr size_t kLargePage = size_t{2} << 20, kExtent = size_t{64} << 20;

  /// `size` bytes that start where a large page does.
  static void* map(size_t size) {
    void* mapped = mmap(nullptr, size + kLargePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      return nullptr;
    }
    const auto begin = reinterpret_cast<uintptr_t>(mapped);
    const uintptr_t aligned = round_up(begin, kLargePage);
    if (aligned > begin) {
      munmap(mapped, aligned - begin);
    }
    auto* start = static_cast<std::byte*>(mapped) + (aligned - begin);
    munmap(start + size, begin + kLargePage - aligned);
    madvise(start, size, MADV_HUGEPAGE);  // a wish: without large pages it is slower, not wrong
    return start;
  }

  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

class CpuAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    const size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    if (std::vector<void*>& blocks = idle_[class_of(size)].blocks; !blocks.empty()) {
      void* memory = blocks.back();
      blocks.pop_back();
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
    Idle& idle = idle_[class_of(size)];
    idle.size = size;
    idle.blocks.push_back(memory);
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
  struct Idle {
    size_t size = 0;  // of each
    std::vector<void*> blocks;
  };

  void* from_system(size_t size) {
    // The sanitizer watches what malloc gives.
    void* memory = kSanitized ? std::aligned_alloc(kAlignment, size) : mappings_.take(size);
    if (memory != nullptr) {
      reserved_ += size;
      if (kSanitized) {
        std::memset(memory, 0xff, size);  // NaN: what is read before it is written shows
      }
    }
    return memory;
  }

  void release_idle() {
    for (auto& [size, blocks] : idle_) {
      for (void* block : blocks) {
        Mappings::give_back(block, size);
        reserved_ -= size;
      }
      blocks.clear();
    }
  }

  mutable std::mutex mutex_;
  Mappings mappings_;
  std::array<Idle, kClasses> idle_;  // by class_of()
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
  check(found != nullptr, "[memory] this program has no backend for {}", device);
  return *found;
}

void install_allocator(Device::Type type, Allocator& allocator) {
  installed()[static_cast<size_t>(type)] = &allocator;
}

}  // namespace headroom
