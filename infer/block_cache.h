// The cache that generation runs on: keys and values in slots that are allocated once, found again
// through a map of blocks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "configs/config.h"
#include "infer/block_map.h"
#include "infer/kv_store.h"
#include "nn/kv_cache.h"

namespace headroom::infer {

/// One layer's keys and values of a sequence: what a file of the cache holds.
struct StoredLayer {
  std::vector<int64_t> starts;  // first positions of its blocks, ascending
  /// By KVStore::parts()' names: the rows of these blocks, up to the sequence's length, one after
  /// another.
  std::vector<std::pair<std::string, Tensor>> parts;
};

/// Makes `there` the numbers of `host` on the device: where it was, if it was as large, for a pass
/// that is repeated finds them there.
void put_there(Tensor& there, const Tensor& host, Device device);

class BlockCache final : public nn::KVCache {
 public:
  /// Room for `batch` sequences, each with the slots of `table` (of layer_table() in a layer with a
  /// narrower window). All of it is allocated here and set to zero. Under `prefixes` the sequences
  /// will share beginnings (infer/block_map.h), which are then stored once.
  BlockCache(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
             const Storage& storage = DType::f32, Device device = kCpu,
             std::span<const int64_t> prefixes = {});

  int64_t batch() const override { return batch_; }
  int64_t position(int64_t sequence) const override;
  kernels::AttentionMask mask(int64_t layer) const override;
  bool rotates_keys() const override { return hadamard_; }
  /// Throws Error, before anything is written, when a sequence would pass the table's tokens, or
  /// when a window has too few blocks for so many new tokens at once.
  kernels::KVView append(int64_t layer, const Tensor& k, const Tensor& v,
                         const Tensor& counts) override;

  /// What append() would do on the host before the first layer of a pass of T tokens per sequence,
  /// ahead of it: all that follows is kernels. In a pass of one token they find their tables where
  /// those of the pass before were; so the device can repeat the last such pass instead, which
  /// repeated() is told after it.
  void begin(const Tensor& counts, int64_t T);
  void repeated() {
    next_layer_ = layers();
    begun_ = false;
  }

  /// Forgets what sequence b saw from position `length` on, so that another continuation can be
  /// computed. Throws Error when a window has moved on and what the next token would see is gone.
  void truncate(int64_t sequence, int64_t length);
  bool can_truncate(int64_t sequence, int64_t length) const;
  /// Sequence b goes on from what parents[b] holds; -1: from nothing. Nothing is copied before one
  /// of those that share a block writes into it.
  void reorder(std::span<const int64_t> parents);

  int64_t layers() const { return std::ssize(layers_); }
  StoredLayer stored(int64_t layer, int64_t sequence) const;
  /// Whether the blocks that begin at `starts` are all that a layer's next token would see of a
  /// sequence of `length` tokens.
  bool can_restore(int64_t layer, int64_t length, std::span<const int64_t> starts) const;
  /// Makes an empty sequence the first `length` tokens of one that was stored when it had `from`.
  /// Throws InputError naming a part that doesn't fit this cache.
  void restore(int64_t sequence, int64_t length, std::span<const StoredLayer> layers, int64_t from);

  /// Bytes of all keys and values, allocated: cache_bytes(), unless sequences share beginnings.
  int64_t bytes() const;
  /// Bytes of the blocks that sequences hold, those they share counted once, at the most so far.
  int64_t most_bytes_in_use() const;
  /// Bytes of keys and values that attention has read: each pass reads the blocks that its queries
  /// see, up to the last key, once.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct Layer {
    size_t group;
    KVStore store;
  };
  /// What a pass of T tokens finds its keys by.
  struct Tables {
    kernels::KVView view = {};  // without `k` and `v`
    Tensor row_slots = {};      // i32 (B * T): where it stores its rows; -1: padding
  };
  /// The layers that see the same keys have their blocks at the same slots.
  struct Group {
    BlockMap map;
    Tables step = {};  // of passes of one token: they stay where they are
    Tables pass = {};  // of another, while it lasts
    std::vector<SlotRange> shown = {};
    int64_t bytes_per_slot = 0;  // in all its layers
  };

  void add_layer(const configs::ModelConfig& model, const BlockTable& table,
                 std::span<const int64_t> prefixes, const Storage& storage, Device device);
  void check_shapes(const Layer& layer, const Tensor& k, const Tensor& counts) const;
  void check_counts(const Tensor& counts, int64_t T) const;
  void check_room(const BlockTable& table, const Tensor& counts) const;
  void prepare(Group& group, const Tensor& counts);
  Tables& tables(Group& group) const { return step_ ? group.step : group.pass; }
  void place_rows(Group& group, const Tensor& counts, int64_t T) const;
  void build_tables(Group& group, const Tensor& counts, int64_t T) const;
  void count_reading();
  void restore_part(const Layer& layer, int64_t sequence, int64_t length, const StoredLayer& stored,
                    const KVStore::Part& part, int64_t from) const;

  int64_t batch_;
  bool hadamard_;
  Device device_;
  std::vector<Group> groups_;
  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_;  // of the sequences, the pass under way included
  int64_t next_layer_;            // of the pass; where it has no more, the next one may begin
  bool begun_ = false;            // by begin(), and no layer has followed yet
  bool step_ = false;             // the pass is one of one token
  int64_t bytes_read_ = 0;
};

}  // namespace headroom::infer
