// Rows into slots.
#include "infer/kv_store.h"

namespace headroom::infer {

KVStore::KVStore(const configs::KVShape& shape, int64_t slots, DType activations, Device device)
    : k_(Tensor::zeros({slots, shape.heads, shape.key_size}, activations, device)),
      v_(shape.value_in_key
             ? k_
             : Tensor::zeros({slots, shape.heads, shape.value_size}, activations, device)) {}

void KVStore::write(const Tensor& k, const Tensor& v, int64_t row, int64_t slot, int64_t count) {
  k_.rows(slot, slot + count).copy_from(k.rows(row, row + count));
  if (!v_.same_memory(k_)) {
    v_.rows(slot, slot + count).copy_from(v.rows(row, row + count));
  }
}

void KVStore::copy(int64_t from, int64_t to, int64_t count) { write(k_, v_, from, to, count); }

int64_t KVStore::bytes() const {
  return static_cast<int64_t>(k_.nbytes() + (v_.same_memory(k_) ? 0 : v_.nbytes()));
}

}  // namespace headroom::infer
