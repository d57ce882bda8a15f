// Counting who holds a block.
#include "infer/block_map.h"

#include <algorithm>

#include "tensor/check.h"

namespace headroom::infer {

int64_t planned_slots(const BlockTable& table, int64_t batch, std::span<const int64_t> prefixes) {
  const auto groups = static_cast<int64_t>(prefixes.size());
  check(groups == 0 || batch % groups == 0, "[cache] {} sequences can't make {} groups", batch,
        groups);
  int64_t slots = batch * table.slots();
  for (const int64_t prefix : prefixes) {
    slots -= (batch / groups - 1) * table.kept_blocks(prefix) * kBlock;
  }
  return slots;
}

BlockMap::BlockMap(const BlockTable& table, int64_t batch, std::span<const int64_t> prefixes)
    : table_(table),
      held_(static_cast<size_t>(batch), std::vector<Held>(static_cast<size_t>(table.places()))) {
  const int64_t rest = table.slots() % kBlock, last = rest > 0 ? batch : 0;
  const int64_t count = (planned_slots(table, batch, prefixes) - last * rest) / kBlock;
  add_blocks(count, kBlock, free_);
  add_blocks(last, rest, free_last_);
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

const BlockMap::Held& BlockMap::at(int64_t sequence, int64_t block) const {
  return held_[static_cast<size_t>(sequence)][static_cast<size_t>(table_.place(block))];
}

std::vector<int64_t> BlockMap::held(int64_t sequence) const {
  std::vector<int64_t> starts;
  for (const Held& each : held_[static_cast<size_t>(sequence)]) {
    if (each.id != kNone) {
      starts.push_back(each.block * kBlock);
    }
  }
  std::sort(starts.begin(), starts.end());
  return starts;
}

int64_t BlockMap::slot(int64_t sequence, int64_t position) const {
  const int32_t id = at(sequence, position / kBlock).id;
  return blocks_[static_cast<size_t>(id)].first_slot + position % kBlock;
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
  if (id == kNone) {
    return;
  }
  Block& block = blocks_[static_cast<size_t>(id)];
  if (--block.holders == 0) {
    (block.size == kBlock ? free_ : free_last_).push_back(id);
    in_use_ -= block.size;
  }
}

std::vector<BlockMap::Copy> BlockMap::prepare(int64_t sequence, int64_t first, int64_t count) {
  std::vector<Copy> copies;
  for (int64_t block = first / kBlock; block * kBlock < first + count; ++block) {
    const int64_t place = table_.place(block);
    Held& held = held_[static_cast<size_t>(sequence)][static_cast<size_t>(place)];
    if (held.id == kNone || blocks_[static_cast<size_t>(held.id)].holders > 1) {
      const int32_t own = take(place);
      if (held.block == block) {  // what stands before `first` goes along
        copies.push_back({blocks_[static_cast<size_t>(held.id)].first_slot,
                          blocks_[static_cast<size_t>(own)].first_slot, first - block * kBlock});
      }
      release(held.id);
      held.id = own;
    }
    held.block = block;
  }
  return copies;
}

bool BlockMap::can_return(int64_t sequence, int64_t position) const {
  const std::vector<int64_t> starts = table_.visible(position, position);
  return std::all_of(starts.begin(), starts.end(), [&](int64_t start) {
    return at(sequence, start / kBlock).block == start / kBlock;
  });
}

void BlockMap::truncate(int64_t sequence, int64_t length) {
  for (Held& held : held_[static_cast<size_t>(sequence)]) {
    if (held.block * kBlock >= length) {
      release(held.id);
      held = {};
    }
  }
}

void BlockMap::reorder(std::span<const int64_t> parents) {
  std::vector<std::vector<Held>> next;
  for (const int64_t parent : parents) {
    next.push_back(parent < 0 ? std::vector<Held>(static_cast<size_t>(table_.places()))
                              : held_[static_cast<size_t>(parent)]);
    for (const Held& held : next.back()) {
      if (held.id != kNone) {
        ++blocks_[static_cast<size_t>(held.id)].holders;
      }
    }
  }
  for (const auto& places : held_) {
    for (const Held& held : places) {
      release(held.id);
    }
  }
  held_ = std::move(next);
}

}  // namespace headroom::infer
