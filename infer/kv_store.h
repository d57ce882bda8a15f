// One layer's keys and values, in slots.
#pragma once

#include "configs/size.h"
#include "tensor/tensor.h"

namespace headroom::infer {

class KVStore {
 public:
  /// `slots` slots, all zero, so that one never written can't poison a result. `activations` is the
  /// type that keys and values arrive in.
  KVStore(const configs::KVShape& shape, int64_t slots, DType activations, Device device);

  /// Stores rows [row, row + count) of k (N, K, Dk) and v (N, K, Dv) from `slot` on;
  /// v is ignored where the values are part of the keys.
  void write(const Tensor& k, const Tensor& v, int64_t row, int64_t slot, int64_t count);
  /// Copies `count` slots; the two ranges don't overlap.
  void copy(int64_t from, int64_t to, int64_t count);

  /// As kernels::KVView has them; both are the keys where the values are part of them.
  const Tensor& k() const { return k_; }
  const Tensor& v() const { return v_; }
  /// Bytes of all slots.
  int64_t bytes() const;

 private:
  Tensor k_, v_;
};

}  // namespace headroom::infer
