// Dynamic shared memory as kernels reach it: a plain pointer on the device; in the harness of
// tests/simt a view that checks bounds and reports reads of what nobody wrote, and races.
#pragma once

#include <cuda_runtime.h>

namespace headroom::kernels::cuda {

#ifdef __CUDACC__

template <class T>
using Shared = T*;

/// The `count` elements that begin `byte_offset` bytes into the block's dynamic shared memory.
template <class T>
__device__ Shared<T> shared_memory(int byte_offset, int /*count*/) {
  extern __shared__ __align__(128) unsigned char headroom_shared_memory[];
  return reinterpret_cast<T*>(headroom_shared_memory + byte_offset);
}

#else  // the harness

template <class T>
class Shared {
  static_assert(sizeof(T) >= 2, "the harness keeps one note for two bytes");

 public:
  /// An element: reading and writing it are noted with the thread that does.
  class Element {
   public:
    explicit Element(int offset) : offset_(offset) {}
    Element(const Element&) = default;
    operator T() const {
      T value;
      ::simt::read_shared(offset_, sizeof(T), &value);
      return value;
    }
    const Element& operator=(T value) const {
      ::simt::write_shared(offset_, sizeof(T), &value);
      return *this;
    }
    const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
    const Element& operator+=(T value) const { return *this = static_cast<T>(*this) + value; }

   private:
    int offset_;
  };

  Shared() = default;
  Shared(int byte_offset, int count) : offset_(byte_offset), count_(count) {}
  Element operator[](int i) const {
    if (i < 0 || i >= count_) {
      ::simt::report_index(i, count_);
    }
    return Element(offset_ + i * static_cast<int>(sizeof(T)));
  }
  /// Where `count` elements from i on begin in the block's shared memory, in bytes.
  int offset_of(int i, int count) const {
    if (i < 0 || i + count > count_) {
      ::simt::report_index(i < 0 ? i : i + count - 1, count_);
    }
    return offset_ + i * static_cast<int>(sizeof(T));
  }
  Shared operator+(int i) const { return {offset_ + i * static_cast<int>(sizeof(T)), count_ - i}; }

 private:
  int offset_ = 0, count_ = 0;
};

template <class T>
Shared<T> shared_memory(int byte_offset, int count) {
  return {byte_offset, count};
}

#endif

}  // namespace headroom::kernels::cuda
