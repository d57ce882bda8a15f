// One layer's keys and values, in slots: how a vector is stored, and where.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "configs/size.h"
#include "kernels/backend.h"
#include "tensor/tensor.h"

namespace headroom::infer {

/// Where the slots are. memory: with the model. host: in the memory of the host, which for a model
/// on the CPU is the same. file: in a nameless file mapped into memory; between two passes of a
/// layer its RAM may be used for something else. For a model on a GPU the last two are apart from
/// it: each pass of a layer brings it the slots that are seen.
enum class Place : uint8_t { memory, host, file };

/// How a cache keeps what it is given.
struct Storage {
  configs::KVTypes types;
  Place place = Place::memory;
  bool hadamard = false;  // keys are turned before they are stored, and queries with them

  Storage(configs::KVTypes as, Place where, bool turned)
      : types(as), place(where), hadamard(turned) {}
  /// As activations of this type are, in memory.
  Storage(DType activations) : types(configs::kv_types_of(activations)) {}
};

/// Slots that follow one another.
struct SlotRange {
  int64_t first = 0, count = 0;
};

class KVStore {
 public:
  /// `slots` slots, all zero, so that one never written can't poison a result.
  KVStore(const configs::KVShape& shape, int64_t slots, const Storage& storage, Device device);

  /// Stores rows of k (N, K, Dk) and v (N, K, Dv), of any activation type, at their slots, i32 (N)
  /// where k is; -1: not stored. v is ignored where the values are part of the keys.
  void write(const Tensor& k, const Tensor& v, const Tensor& slots);
  /// Copies `count` slots; the two ranges don't overlap.
  void copy(int64_t from, int64_t to, int64_t count);

  /// Puts keys and values into a view, of which attention will read the slots `seen`.
  void show(kernels::KVView& view, std::span<const SlotRange> seen) const;
  const configs::KVShape& shape() const { return shape_; }
  /// Bytes of all slots: configs::cache_bytes_per_token() for each.
  int64_t bytes() const;
  /// All there is, by name ("k", "k_scales", "v", "v_scales"; absent ones left out), each with the
  /// slots as its first axis: what a file of the cache holds.
  struct Part {
    const char* name;
    Tensor tensor;
  };
  std::vector<Part> parts() const;

  /// In a file: asks for the slots to be read ahead of a pass; lets go of their RAM after it.
  void bring_back() const;
  void let_go() const;

 private:
  struct Rows {
    Tensor values;
    kernels::KVCode code;
  };
  Rows make_rows(int64_t slots, int64_t width, configs::KVType type) const;
  Tensor zeros(const Shape& shape, DType dtype) const;
  static void store(const Tensor& x, const Tensor& slots, Rows& to);
  Rows brought(const Rows& rows, std::span<const SlotRange> seen) const;

  configs::KVShape shape_;
  Place place_;
  Device device_;  // the model's
  Rows k_, v_;     // v_ is empty where the values are part of the keys
};

}  // namespace headroom::infer
