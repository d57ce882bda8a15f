// A dense, row-major block of numbers. A Tensor is a handle: copying one shares its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tensor/check.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace headroom {

class Tensor {
 public:
  Tensor() = default;  // no memory: defined() is false

  /// Memory that holds anything at all; whoever asks writes every element.
  static Tensor empty(const Shape& shape, DType dtype, Device device = kCpu);
  static Tensor zeros(const Shape& shape, DType dtype, Device device = kCpu);
  /// A tensor in memory of the host that is not the allocator's (a mapped file, say) and lives as
  /// long as its last handle: at least as many bytes as the shape needs, aligned to 64.
  static Tensor over(std::shared_ptr<void> memory, const Shape& shape, DType dtype);
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = kCpu);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = kCpu) {
    return from(std::span<const T>(values), shape, device);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_.dim(i); }
  int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  Device device() const;
  size_t nbytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }

  /// The elements. Throws unless T is the stored type.
  template <class T>
  T* data() {
    require(kDTypeOf<T>);
    return static_cast<T*>(raw());
  }
  template <class T>
  const T* data() const {
    require(kDTypeOf<T>);
    return static_cast<const T*>(raw());
  }
  void* raw() { return bytes(); }
  const void* raw() const { return bytes(); }

  /// Views: the same memory under another shape, and a range of the first axis.
  Tensor reshape(const Shape& shape) const;
  Tensor rows(int64_t begin, int64_t end) const;

  /// Copies. to() returns the tensor itself when it is there already.
  Tensor clone() const;
  Tensor to(Device device) const;
  /// Overwrites the elements with those of `from`: same shape and type, any device.
  void copy_from(const Tensor& from);
  void zero();
  /// Host copy of the elements.
  template <class T>
  std::vector<T> to_vector() const {
    const Tensor host = to(kCpu);
    return {host.data<T>(), host.data<T>() + numel()};
  }
  /// The value of a one-element tensor, as a double.
  double item() const;

  /// Whether another handle shares this memory.
  bool shared() const { return storage_.use_count() > 1; }
  bool same_memory(const Tensor& other) const { return bytes() == other.bytes() && defined(); }

 private:
  struct Storage {
    Storage(size_t size, Device where);
    explicit Storage(std::shared_ptr<void> lent);
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;
    ~Storage();
    size_t bytes;
    Device device;
    void* memory;
    std::shared_ptr<void> lender;  // whose the memory is, if not the allocator's
  };
  void require(DType asked) const {
    if (!defined() || asked != dtype_) [[unlikely]] {
      throw_other_type(asked);
    }
  }
  [[noreturn]] void throw_other_type(DType asked) const;
  std::byte* bytes() const {
    return storage_ == nullptr ? nullptr : static_cast<std::byte*>(storage_->memory) + offset_;
  }

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// The elements of a tensor of any type on any device.
std::vector<double> to_doubles(const Tensor& x);

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, Device device) {
  check(static_cast<int64_t>(values.size()) == shape.numel(), "[tensor] {} values for shape {}",
        values.size(), shape);
  Tensor host = empty(shape, kDTypeOf<T>);
  std::copy(values.begin(), values.end(), host.data<T>());
  return host.to(device);
}

}  // namespace headroom
