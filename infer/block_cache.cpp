// Writing keys and values into blocks and showing them to attention.
#include "infer/block_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headroom::infer {

using kernels::KVView;

BlockCache::BlockCache(const configs::ModelConfig& model, const BlockTable& table, int64_t batch,
                       DType dtype, Device device)
    : table_(table), batch_(batch) {
  check(batch > 0, "[cache] a batch must have sequences: got {}", batch);
  check(table.slots() <= std::numeric_limits<int32_t>::max() / batch,
        "[cache] {} sequences of {} slots are more than an index can name ({})", batch,
        table.slots(), std::numeric_limits<int32_t>::max());
  const Shape shape{batch * table.slots(), model.n_kv_head, model.head_dim()};
  for (int64_t i = 0; i < model.n_layer; ++i) {
    layers_.push_back({Tensor::zeros(shape, dtype, device), Tensor::zeros(shape, dtype, device),
                       std::vector<int64_t>(static_cast<size_t>(batch), 0)});
  }
}

int64_t BlockCache::position(int64_t sequence) const {
  return layers_.front().lengths.at(static_cast<size_t>(sequence));
}

int64_t BlockCache::bytes() const {
  int64_t sum = 0;
  for (const Layer& layer : layers_) {
    sum += static_cast<int64_t>(layer.k.nbytes() + layer.v.nbytes());
  }
  return sum;
}

KVView BlockCache::append(int64_t layer, const Tensor& k, const Tensor& v, const Tensor& counts) {
  Layer& at = layers_.at(static_cast<size_t>(layer));
  check_room(at, k, counts);
  const int64_t T = k.dim(1);
  const auto* count = counts.data<int32_t>();
  for (int64_t b = 0; b < batch_; ++b) {
    int64_t& length = at.lengths[static_cast<size_t>(b)];
    write(k, b * T, at.k, b, length, count[b]);
    write(v, b * T, at.v, b, length, count[b]);
    length += count[b];
  }
  return view(at, counts);
}

void BlockCache::check_room(const Layer& layer, const Tensor& k, const Tensor& counts) const {
  check(k.rank() == 4 && k.dim(0) == batch_ && counts.numel() == batch_,
        "[cache] made for {} sequences: got keys {} and {} counts", batch_, k.shape(),
        counts.numel());
  check(k.dim(2) == layer.k.dim(1) && k.dim(3) == layer.k.dim(2) && k.dtype() == layer.k.dtype(),
        "[cache] made for {} heads of {} in {}: got {} of {} in {}", layer.k.dim(1), layer.k.dim(2),
        name_of(layer.k.dtype()), k.dim(2), k.dim(3), name_of(k.dtype()));
  check(&layer != &layers_.front() || layer.lengths == layers_.back().lengths,
        "[cache] a pass before this one did not reach the last layer; start a new cache");
  for (int64_t b = 0; b < batch_; ++b) {
    const int64_t first = layer.lengths[static_cast<size_t>(b)];
    const int64_t count = counts.data<int32_t>()[b], length = first + count;
    check(count >= 0 && count <= k.dim(1), "[cache] {} of {} new tokens are real in sequence {}",
          count, k.dim(1), b);
    check(length <= table_.tokens(), "[cache] sequence {} would have {} tokens: made for {}", b,
          length, table_.tokens());
    check(table_.fits(first, length),
          "[cache] {} tokens at once from position {} of sequence {} don't fit beside a window of "
          "{}: give at most {}, and none across a multiple of {}",
          count, first, b, table_.mask().window, KVView::kBlock, KVView::kBlock);
  }
}

void BlockCache::write(const Tensor& from, int64_t row, Tensor& to, int64_t sequence, int64_t first,
                       int64_t count) const {
  const Tensor rows = from.reshape({from.dim(0) * from.dim(1), from.dim(2), from.dim(3)});
  for (int64_t done = 0; done < count;) {
    const int64_t position = first + done;
    const int64_t run = std::min(count - done, KVView::kBlock - position % KVView::kBlock);
    const int64_t slot = sequence * table_.slots() + table_.slot(position);
    to.rows(slot, slot + run).copy_from(rows.rows(row + done, row + done + run));
    done += run;
  }
}

KVView BlockCache::view(const Layer& layer, const Tensor& counts) {
  if (layer.lengths != tables_lengths_ || !tables_.counts.same_memory(counts)) {
    build_tables(layer.lengths, counts);
  }
  KVView shown = &layer == &layers_.back() ? std::exchange(tables_, {}) : tables_;
  shown.k = layer.k;
  shown.v = layer.v;
  return shown;
}

void BlockCache::build_tables(const std::vector<int64_t>& all_lengths, const Tensor& counts) {
  std::vector<std::vector<int64_t>> visible;
  size_t blocks = 1;
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < batch_; ++b) {
    const int64_t length = all_lengths[static_cast<size_t>(b)];
    const int64_t count = counts.data<int32_t>()[b];
    visible.push_back(count == 0 ? std::vector<int64_t>() : table_.visible(length - count, length));
    blocks = std::max(blocks, visible.back().size());
    lengths.push_back(static_cast<int32_t>(length));
  }
  std::vector<int32_t> slots, starts;
  for (int64_t b = 0; b < batch_; ++b) {
    for (const int64_t start : visible[static_cast<size_t>(b)]) {
      slots.push_back(static_cast<int32_t>(b * table_.slots() + table_.slot(start)));
      starts.push_back(static_cast<int32_t>(start));
    }
    const size_t row_end = static_cast<size_t>(b + 1) * blocks;
    slots.resize(row_end, 0);
    starts.resize(row_end, -1);
  }
  const Shape shape{batch_, static_cast<int64_t>(blocks)};
  const Device device = layers_.front().k.device();
  tables_ = {.k = {},
             .v = {},
             .slots = Tensor::from(slots, shape, device),
             .starts = Tensor::from(starts, shape, device),
             .lengths = Tensor::from(lengths, {batch_}, device),
             .counts = counts.to(device)};
  tables_lengths_ = all_lengths;
}

void BlockCache::truncate(int64_t sequence, int64_t length) {
  const int64_t now = position(sequence);
  check(length >= 0 && length <= now, "[cache] sequence {} has {} tokens: it can't be cut to {}",
        sequence, now, length);
  check(table_.can_return(now, length),
        "[cache] the window of {} has moved past position {} of sequence {}: recompute it",
        table_.mask().window, length, sequence);
  for (Layer& layer : layers_) {
    layer.lengths[static_cast<size_t>(sequence)] = length;
  }
}

}  // namespace headroom::infer
