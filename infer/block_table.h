// Which blocks of positions a sequence keeps, and at which of its places: everything (append), or
// what a window and its sinks need (a ring of blocks behind blocks that stay). Only arithmetic: no
// memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace headroom::infer {

inline constexpr int64_t kBlock = kernels::KVView::kBlock;  // positions per block

class BlockTable {
 public:
  /// For sequences of at most `tokens` tokens. Under a window, blocks that no coming query can see
  /// are used again: there are enough of them for `chunk` new tokens at once at any position, and
  /// for up to a whole block of new tokens that doesn't cross a multiple of the block size, which
  /// costs no more than one token does.
  BlockTable(kernels::AttentionMask mask, int64_t tokens, int64_t chunk = 1);

  /// The table of a layer that has a mask of its own.
  BlockTable with_mask(kernels::AttentionMask mask) const {
    return BlockTable(mask, tokens_, chunk_);
  }

  const kernels::AttentionMask& mask() const { return mask_; }
  int64_t tokens() const { return tokens_; }
  /// Slots that each sequence has: `tokens`, or a whole number of blocks where a window makes that
  /// fewer.
  int64_t slots() const { return slots_; }
  /// Places for blocks: all hold a whole one, but for the last, which has what is left of slots().
  int64_t places() const;
  /// The place of a block.
  int64_t place(int64_t block) const;

  /// The slot, of the sequence's own, of a position.
  int64_t slot(int64_t position) const;
  /// First positions, ascending, of the blocks that the queries at first .. length - 1 can see.
  std::vector<int64_t> visible(int64_t first, int64_t length) const;
  /// Whether those blocks have places of their own, so that the queries can be answered together.
  bool fits(int64_t first, int64_t length) const;
  /// How many blocks the first `length` tokens fill for good: their places are not used again.
  int64_t kept_blocks(int64_t length) const;

 private:
  /// Block that holds the oldest key of the window of the query at `first`.
  int64_t oldest_block(int64_t first) const;

  kernels::AttentionMask mask_;
  int64_t tokens_;
  int64_t chunk_;
  int64_t pinned_;  // blocks that hold the sinks: never used again
  int64_t ring_;    // places after them
  int64_t slots_;
};

/// How many keys a block that begins at `start` has of a sequence of `length` tokens.
inline int64_t keys_in_block(int64_t start, int64_t length) {
  return std::min(start + kBlock, length) - start;
}

}  // namespace headroom::infer
