// The cache that generation runs on: keys and values in slots that are allocated once, found again
// through a table of blocks.
#pragma once

#include <vector>

#include "configs/config.h"
#include "infer/block_table.h"
#include "nn/kv_cache.h"

namespace headroom::infer {

class BlockCache final : public nn::KVCache {
 public:
  /// Room for `batch` sequences, each with the slots of `table`, in elements of `dtype`, the
  /// activations' type. All of it is allocated here and set to zero, so that a slot never written
  /// can't poison a result.
  BlockCache(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
             DType dtype = DType::f32, Device device = kCpu);

  int64_t batch() const override { return batch_; }
  int64_t position(int64_t sequence) const override;
  kernels::AttentionMask mask() const override { return table_.mask(); }
  /// Throws Error, before anything is written, when a sequence would pass the table's tokens, or
  /// when a window has too few blocks for so many new tokens at once.
  kernels::KVView append(int64_t layer, const Tensor& k, const Tensor& v,
                         const Tensor& counts) override;

  /// Forgets what sequence b saw from position `length` on, so that another continuation can be
  /// computed. Throws Error when a window has moved on and what the next token would see is gone.
  void truncate(int64_t sequence, int64_t length);

  const BlockTable& table() const { return table_; }
  /// Bytes of all keys and values: configs::cache_bytes() of slots() tokens.
  int64_t bytes() const;

 private:
  struct Layer {
    Tensor k, v;                   // (batch * slots, K, D)
    std::vector<int64_t> lengths;  // tokens written, per sequence
  };

  void check_room(const Layer& layer, const Tensor& k, const Tensor& counts) const;
  void write(const Tensor& from, int64_t row, Tensor& to, int64_t sequence, int64_t first,
             int64_t count) const;
  kernels::KVView view(const Layer& layer, const Tensor& counts);
  void build_tables(const std::vector<int64_t>& lengths, const Tensor& counts);

  BlockTable table_;
  int64_t batch_;
  std::vector<Layer> layers_;
  /// A pass shows every layer the same tables: made for its first one, dropped with its last. `k`
  /// and `v` are absent.
  kernels::KVView tables_;
  std::vector<int64_t> tables_lengths_;  // what they were made for, with tables_.counts
};

}  // namespace headroom::infer
