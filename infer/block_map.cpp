// Counting who holds a block.
#include "infer/block_map.h"

#include <algorithm>

#include "tensor/check.h"

namespace headroom::infer {

namespace {

constexpr int64_t kBlock = kernels::KVView::kBlock;

}  // namespace

BlockMap::BlockMap(const BlockTable& table, int64_t batch, std::span<const int64_t> prefixes)
    : table_(table),
      held_(static_cast<size_t>(batch),
            std::vector<int32_t>(static_cast<size_t>(table.places()), kNone)) {
  const int64_t whole = table.slots() / kBlock, rest = table.slots() % kBlock;
  int64_t count = batch * whole;
  if (!prefixes.empty()) {
    const auto groups = static_cast<int64_t>(prefixes.size());
    check(batch % groups == 0, "[cache] {} sequences can't make {} groups", batch, groups);
    for (const int64_t prefix : prefixes) {
      count -= (batch / groups - 1) * table.kept_blocks(prefix);
    }
  }
  add_blocks(count, kBlock, free_);
  add_blocks(rest > 0 ? batch : 0, rest, free_last_);
}

void BlockMap::add_blocks(int64_t count, int64_t size, std::vector<int32_t>& free) {
  const auto first = static_cast<int32_t>(blocks_.size());
  for (int64_t i = 0; i < count; ++i, slots_ += size) {
    blocks_.push_back({.first_slot = slots_, .size = size});
  }
  // The last one is taken first: sequences then lie in ascending order.
  for (auto id = static_cast<int32_t>(blocks_.size()); id > first; --id) {
    free.push_back(id - 1);
  }
}

int64_t BlockMap::slot(int64_t sequence, int64_t position) const {
  const int32_t id =
      held_[static_cast<size_t>(sequence)][static_cast<size_t>(table_.place(position / kBlock))];
  return blocks_[static_cast<size_t>(id)].first_slot + position % kBlock;
}

int32_t& BlockMap::at(int64_t sequence, int64_t block) {
  return held_[static_cast<size_t>(sequence)][static_cast<size_t>(table_.place(block))];
}

int32_t BlockMap::take(int64_t place) {
  auto& free = place == table_.slots() / kBlock ? free_last_ : free_;
  check(!free.empty(), "[cache] all {} blocks are in use: sequences share less than was planned",
        blocks_.size());
  const int32_t id = free.back();
  free.pop_back();
  Block& block = blocks_[static_cast<size_t>(id)];
  block.holders = 1;
  in_use_ += block.size;
  most_in_use_ = std::max(most_in_use_, in_use_);
  return id;
}

void BlockMap::release(int32_t id) {
  Block& block = blocks_[static_cast<size_t>(id)];
  if (--block.holders == 0) {
    (block.size == kBlock ? free_ : free_last_).push_back(id);
    in_use_ -= block.size;
  }
}

std::vector<BlockMap::Copy> BlockMap::prepare(int64_t sequence, int64_t first, int64_t count) {
  std::vector<Copy> copies;
  for (int64_t block = first / kBlock; block * kBlock < first + count; ++block) {
    int32_t& held = at(sequence, block);
    if (held != kNone && blocks_[static_cast<size_t>(held)].holders == 1) {
      continue;
    }
    const int32_t own = take(table_.place(block));
    if (held != kNone) {
      // What stands before `first` goes along; at a block's beginning that is nothing.
      if (const int64_t written = first - block * kBlock; written > 0) {
        copies.push_back({blocks_[static_cast<size_t>(held)].first_slot,
                          blocks_[static_cast<size_t>(own)].first_slot, written});
      }
      release(held);
    }
    held = own;
  }
  return copies;
}

void BlockMap::truncate(int64_t sequence, int64_t from, int64_t length) {
  for (int64_t block = (length + kBlock - 1) / kBlock; block * kBlock < from; ++block) {
    if (int32_t& held = at(sequence, block); held != kNone) {
      release(held);
      held = kNone;
    }
  }
}

void BlockMap::reorder(std::span<const int64_t> parents) {
  std::vector<std::vector<int32_t>> next;
  for (const int64_t parent : parents) {
    next.push_back(held_[static_cast<size_t>(parent)]);
    for (const int32_t id : next.back()) {
      blocks_[static_cast<size_t>(std::max(id, 0))].holders += id == kNone ? 0 : 1;
    }
  }
  for (const auto& places : held_) {
    for (const int32_t id : places) {
      if (id != kNone) {
        release(id);
      }
    }
  }
  held_ = std::move(next);
}

}  // namespace headroom::infer
