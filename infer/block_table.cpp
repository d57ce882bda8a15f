// Which place a block has: one after another, or sinks and a ring of blocks.
#include "infer/block_table.h"

#include <algorithm>

#include "tensor/check.h"

namespace headroom::infer {

namespace {

int64_t blocks_for(int64_t positions) { return (positions + kBlock - 1) / kBlock; }

/// Most blocks that `n` >= 1 consecutive positions can touch, wherever they begin.
int64_t most_blocks_touched(int64_t n) { return (n + kBlock - 2) / kBlock + 1; }

}  // namespace

BlockTable::BlockTable(kernels::AttentionMask mask, int64_t tokens, int64_t chunk)
    : mask_(mask), tokens_(tokens), chunk_(chunk) {
  check(tokens > 0 && chunk > 0 && mask.window >= 0 && mask.sinks >= 0,
        "[cache] tokens and chunk must be positive, window and sinks not negative: got {}, {}, {} "
        "and {}",
        tokens, chunk, mask.window, mask.sinks);
  const int64_t all = blocks_for(tokens);
  pinned_ = mask.window > 0 ? std::min(blocks_for(mask.sinks), all) : 0;
  ring_ = std::max<int64_t>(1, all - pinned_);
  if (mask.window > 0) {
    ring_ = std::min(ring_, most_blocks_touched(mask.window + chunk - 1));
  }
  slots_ = std::min(tokens, (pinned_ + ring_) * kBlock);
}

int64_t BlockTable::places() const { return blocks_for(slots_); }

int64_t BlockTable::place(int64_t block) const {
  return block < pinned_ ? block : pinned_ + (block - pinned_) % ring_;
}

int64_t BlockTable::slot(int64_t position) const {
  return place(position / kBlock) * kBlock + position % kBlock;
}

int64_t BlockTable::oldest_block(int64_t first) const {
  return mask_.window > 0 ? std::max<int64_t>(0, first - mask_.window + 1) / kBlock : 0;
}

std::vector<int64_t> BlockTable::visible(int64_t first, int64_t length) const {
  std::vector<int64_t> starts;
  const int64_t oldest = oldest_block(first);
  for (int64_t block = 0; block < std::min(oldest, pinned_); ++block) {
    starts.push_back(block * kBlock);
  }
  for (int64_t block = oldest; block < blocks_for(length); ++block) {
    starts.push_back(block * kBlock);
  }
  return starts;
}

bool BlockTable::fits(int64_t first, int64_t length) const {
  return blocks_for(length) - std::max(oldest_block(first), pinned_) <= ring_;
}

int64_t BlockTable::kept_blocks(int64_t length) const {
  const bool all_stay = pinned_ + ring_ >= blocks_for(tokens_);
  return std::min(length / kBlock, all_stay ? slots_ / kBlock : pinned_);
}

}  // namespace headroom::infer
