// Where the blocks of a cache's sequences lie in its memory. Sequences may share blocks: what is
// shared is copied before it is written, so that a common beginning is stored once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/block_table.h"

namespace headroom::infer {

/// Slots of `batch` sequences with the places of `table`. `prefixes` cuts the batch into as many
/// groups of neighbours, each of which will share its first prefixes[i] tokens for good: their
/// blocks are counted once. Without any it is batch * table.slots().
int64_t planned_slots(const BlockTable& table, int64_t batch, std::span<const int64_t> prefixes);

class BlockMap {
 public:
  /// Blocks with planned_slots().
  BlockMap(const BlockTable& table, int64_t batch, std::span<const int64_t> prefixes = {});

  const BlockTable& table() const { return table_; }
  /// Slots of all blocks.
  int64_t slots() const { return slots_; }
  /// Slots of the blocks that some sequence holds, and the most that were held at once.
  int64_t slots_in_use() const { return in_use_; }
  int64_t most_slots_in_use() const { return most_in_use_; }

  /// First positions of the blocks that the sequence holds, ascending.
  std::vector<int64_t> held(int64_t sequence) const;
  /// The slot of a position that the sequence holds.
  int64_t slot(int64_t sequence, int64_t position) const;

  struct Copy {
    int64_t from, to, count;  // slots
  };
  /// Makes the blocks of positions first .. first + count - 1 the sequence's own, so that they can
  /// be written. Returns what has to be copied before that. Throws Error when no block is free.
  std::vector<Copy> prepare(int64_t sequence, int64_t first, int64_t count);
  /// Whether the sequence still has what the token at `position`, which it has passed, would see.
  bool can_return(int64_t sequence, int64_t position) const;
  /// Gives back the blocks that begin at `length` or later.
  void truncate(int64_t sequence, int64_t length);
  /// Sequence b goes on from what parents[b] holds; -1: from nothing.
  void reorder(std::span<const int64_t> parents);

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int64_t first_slot = 0, size = 0;
    int64_t holders = 0;  // sequences
  };
  struct Held {
    int32_t id = kNone;
    int64_t block = -1;  // of positions: places of a ring are used again
  };
  const Held& at(int64_t sequence, int64_t block) const;
  int32_t take(int64_t place);
  void release(int32_t id);  // or kNone
  void add_blocks(int64_t count, int64_t size, std::vector<int32_t>& free);

  BlockTable table_;
  int64_t slots_ = 0, in_use_ = 0, most_in_use_ = 0;
  std::vector<Block> blocks_;
  std::vector<int32_t> free_, free_last_;  // whole blocks; those of the size of the last place
  std::vector<std::vector<Held>> held_;    // [sequence][place]
};

}  // namespace headroom::infer
