// Writing keys and values into blocks and showing them to attention.
#include "infer/block_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "infer/cache_size.h"
#include "kernels/kv_view.h"

namespace headroom::infer {

using kernels::KVView;

namespace {

bool same(const kernels::AttentionMask& a, const kernels::AttentionMask& b) {
  return a.window == b.window && a.sinks == b.sinks;
}

}  // namespace

void put_there(Tensor& there, const Tensor& host, Device device) {
  if (!there.defined() || there.shape() != host.shape()) {
    there = Tensor::empty(host.shape(), host.dtype(), device);
  }
  there.copy_from(host);
}

BlockCache::BlockCache(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
                       const Storage& storage, Device device, std::span<const int64_t> prefixes)
    : batch_(batch),
      hadamard_(storage.hadamard),
      device_(device),
      lengths_(static_cast<size_t>(std::max<int64_t>(0, batch)), 0),
      next_layer_(model.n_layer) {
  check(batch > 0, "[cache] a batch must have sequences: got {}", batch);
  for (int64_t i = 0; i < model.n_layer; ++i) {
    add_layer(model, layer_table(model, i, table), prefixes, storage, device);
  }
}

void BlockCache::add_layer(const configs::ModelConfig& model, const BlockTable& table,
                           std::span<const int64_t> prefixes, const Storage& storage,
                           Device device) {
  check(table.slots() <= std::numeric_limits<int32_t>::max() / batch_,
        "[cache] {} sequences of {} slots are more than an index can name ({})", batch_,
        table.slots(), std::numeric_limits<int32_t>::max());
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return same(g.map.table().mask(), table.mask());
  });
  if (group == groups_.end()) {
    groups_.push_back({.map = BlockMap(table, batch_, prefixes)});
    group = groups_.end() - 1;
  }
  layers_.push_back({static_cast<size_t>(group - groups_.begin()),
                     KVStore(configs::kv_shape(model), group->map.slots(), storage, device)});
  group->bytes_per_slot += layers_.back().store.bytes() / group->map.slots();
}

int64_t BlockCache::position(int64_t sequence) const {
  return lengths_.at(static_cast<size_t>(sequence));
}

kernels::AttentionMask BlockCache::mask(int64_t layer) const {
  return groups_[layers_.at(static_cast<size_t>(layer)).group].map.table().mask();
}

int64_t BlockCache::bytes() const {
  int64_t sum = 0;
  for (const Layer& layer : layers_) {
    sum += layer.store.bytes();
  }
  return sum;
}

int64_t BlockCache::most_bytes_in_use() const {
  int64_t sum = 0;
  for (const Layer& layer : layers_) {
    const BlockMap& map = groups_[layer.group].map;
    sum += layer.store.bytes() / map.slots() * map.most_slots_in_use();
  }
  return sum;
}

KVView BlockCache::append(int64_t layer, const Tensor& k, const Tensor& v, const Tensor& counts) {
  Layer& at = layers_.at(static_cast<size_t>(layer));
  check_shapes(at, k, counts);
  if (layer == 0 && !std::exchange(begun_, false)) {
    begin(counts, k.dim(1));
    begun_ = false;
  }
  check(layer == next_layer_, "[cache] layer {} after layer {}", layer, next_layer_ - 1);
  ++next_layer_;
  // In a file, only the layer at work needs RAM.
  layers_[static_cast<size_t>(layer + layers() - 1) % layers_.size()].store.let_go();
  at.store.bring_back();
  Group& group = groups_[at.group];
  const Tables& found = tables(group);
  const auto rows_of = [](const Tensor& x) {
    return x.reshape({x.dim(0) * x.dim(1), x.dim(2), x.dim(3)});
  };
  at.store.write(rows_of(k), rows_of(v), found.row_slots);
  KVView shown = found.view;
  at.store.show(shown, group.shown);
  if (next_layer_ == layers()) {
    for (Group& each : groups_) {
      each.pass = {};
    }
  }
  return shown;
}

void BlockCache::begin(const Tensor& counts, int64_t T) {
  check(next_layer_ == layers(),
        "[cache] a pass before this one did not reach the last layer; start a new cache");
  check_counts(counts, T);
  for (const Group& group : groups_) {
    check_room(group.map.table(), counts);
  }
  step_ = T == 1;
  for (Group& group : groups_) {
    prepare(group, counts);
    place_rows(group, counts, T);
    build_tables(group, counts, T);
  }
  for (size_t b = 0; b < lengths_.size(); ++b) {
    lengths_[b] += counts.data<int32_t>()[b];
  }
  count_reading();
  next_layer_ = 0;
  begun_ = true;
}

void BlockCache::check_shapes(const Layer& layer, const Tensor& k, const Tensor& counts) const {
  check(k.rank() == 4 && k.dim(0) == batch_ && counts.numel() == batch_,
        "[cache] made for {} sequences: got keys {} and {} counts", batch_, k.shape(),
        counts.numel());
  const configs::KVShape& held = layer.store.shape();
  check(k.dim(2) == held.heads && k.dim(3) == held.key_size,
        "[cache] made for {} heads of {}: got {} of {}", held.heads, held.key_size, k.dim(2),
        k.dim(3));
}

void BlockCache::check_counts(const Tensor& counts, int64_t T) const {
  for (int64_t b = 0; b < batch_; ++b) {
    const int32_t count = counts.data<int32_t>()[b];
    check(count >= 0 && count <= T, "[cache] {} of {} new tokens are real in sequence {}", count, T,
          b);
  }
}

void BlockCache::check_room(const BlockTable& table, const Tensor& counts) const {
  for (int64_t b = 0; b < batch_; ++b) {
    const int64_t first = position(b), count = counts.data<int32_t>()[b], length = first + count;
    check(length <= table.tokens(), "[cache] sequence {} would have {} tokens: made for {}", b,
          length, table.tokens());
    check(table.fits(first, length),
          "[cache] {} tokens at once from position {} of sequence {} don't fit beside a window of "
          "{}: give at most {}, and none across a multiple of {}",
          count, first, b, table.mask().window, KVView::kBlock, KVView::kBlock);
  }
}

/// Gives the new tokens blocks that they can be written to, in all layers of the group.
void BlockCache::prepare(Group& group, const Tensor& counts) {
  for (int64_t b = 0; b < batch_; ++b) {
    for (const auto& [from, to, count] :
         group.map.prepare(b, position(b), counts.data<int32_t>()[b])) {
      for (Layer& layer : layers_) {
        if (&groups_[layer.group] == &group) {
          layer.store.copy(from, to, count);
        }
      }
    }
  }
}

void BlockCache::place_rows(Group& group, const Tensor& counts, int64_t T) const {
  std::vector<int32_t> slots(static_cast<size_t>(batch_ * T), -1);
  for (int64_t b = 0; b < batch_; ++b) {
    for (int64_t t = 0; t < counts.data<int32_t>()[b]; ++t) {
      slots[static_cast<size_t>(b * T + t)] =
          static_cast<int32_t>(group.map.slot(b, position(b) + t));
    }
  }
  put_there(tables(group).row_slots, Tensor::from(slots, {batch_ * T}), device_);
}

/// For a pass whose keys are about to be written. Those of one token are as wide as they can
/// become: a pass that is repeated has the first one's sizes.
void BlockCache::build_tables(Group& group, const Tensor& counts, int64_t T) const {
  std::vector<std::vector<int64_t>> visible;
  size_t blocks = step_ ? static_cast<size_t>(group.map.table().places()) : 1;
  std::vector<int32_t> lengths;
  group.shown.clear();
  for (int64_t b = 0; b < batch_; ++b) {
    const int64_t first = position(b), count = counts.data<int32_t>()[b];
    visible.push_back(count == 0 ? std::vector<int64_t>()
                                 : group.map.table().visible(first, first + count));
    blocks = std::max(blocks, visible.back().size());
    lengths.push_back(static_cast<int32_t>(first + count));
  }
  std::vector<int32_t> slots, starts;
  for (int64_t b = 0; b < batch_; ++b) {
    for (const int64_t start : visible[static_cast<size_t>(b)]) {
      const int64_t slot = group.map.slot(b, start),
                    keys = keys_in_block(start, lengths[static_cast<size_t>(b)]);
      slots.push_back(static_cast<int32_t>(slot));
      starts.push_back(static_cast<int32_t>(start));
      group.shown.push_back({slot, keys});
    }
    const size_t row_end = static_cast<size_t>(b + 1) * blocks;
    slots.resize(row_end, 0);
    starts.resize(row_end, -1);
  }
  const Shape shape{batch_, static_cast<int64_t>(blocks)};
  const Tensor host_slots = Tensor::from(slots, shape), host_starts = Tensor::from(starts, shape),
               host_lengths = Tensor::from(lengths, {batch_});
  KVView& view = tables(group).view;
  put_there(view.slots, host_slots, device_);
  put_there(view.starts, host_starts, device_);
  put_there(view.lengths, host_lengths, device_);
  put_there(view.counts, counts, device_);
  if (!step_) {  // a repeated pass's lengths are other ones
    view.dense = kernels::dense_keys(host_slots, host_starts, host_lengths, counts, T);
  }
}

void BlockCache::count_reading() {
  for (const Group& group : groups_) {
    for (const SlotRange& range : group.shown) {
      bytes_read_ += group.bytes_per_slot * range.count;
    }
  }
}

bool BlockCache::can_truncate(int64_t sequence, int64_t length) const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [&](const Group& group) { return group.map.can_return(sequence, length); });
}

void BlockCache::truncate(int64_t sequence, int64_t length) {
  const int64_t now = position(sequence);
  check(length >= 0 && length <= now, "[cache] sequence {} has {} tokens: it can't be cut to {}",
        sequence, now, length);
  check(can_truncate(sequence, length),
        "[cache] a window has moved past position {} of sequence {}: recompute it", length,
        sequence);
  for (Group& group : groups_) {
    group.map.truncate(sequence, length);
  }
  lengths_[static_cast<size_t>(sequence)] = length;
}

void BlockCache::reorder(std::span<const int64_t> parents) {
  check(static_cast<int64_t>(parents.size()) == batch_ &&
            std::all_of(parents.begin(), parents.end(),
                        [&](int64_t parent) { return parent >= -1 && parent < batch_; }),
        "[cache] {} sequences need as many parents among them: got {}", batch_, parents.size());
  for (Group& group : groups_) {
    group.map.reorder(parents);
  }
  const std::vector<int64_t> before = lengths_;
  for (size_t b = 0; b < parents.size(); ++b) {
    lengths_[b] = parents[b] < 0 ? 0 : before[static_cast<size_t>(parents[b])];
  }
}

}  // namespace headroom::infer
