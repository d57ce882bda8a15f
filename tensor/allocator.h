// Memory of one device. A backend installs the allocator of its device; the CPU's is always there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/device.h"

namespace headroom {

class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes, aligned to 64. Throws Error with the bytes asked for when there are
  /// none.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* memory, size_t bytes) noexcept = 0;
  virtual void zero(void* memory, size_t bytes) = 0;
  /// Copies between this device and the host, or within this device.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device,
                    size_t bytes) = 0;
  /// Bytes handed out and not yet freed; the most there have been; bytes taken from the system.
  virtual size_t bytes_in_use() const = 0;
  virtual size_t peak_bytes() const = 0;
  virtual size_t bytes_reserved() const = 0;
};

/// The allocator of a device. Throws when no backend has installed one.
Allocator& allocator(Device device);
/// Called once by a backend. The allocator must outlive every tensor.
void install_allocator(Device::Type type, Allocator& allocator);

}  // namespace headroom
