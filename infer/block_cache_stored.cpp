// BlockCache's part in files: a sequence's keys and values taken out, and put into another cache.
#include <algorithm>

#include "infer/block_cache.h"

namespace headroom::infer {

StoredLayer BlockCache::stored(int64_t layer, int64_t sequence) const {
  const Layer& at = layers_.at(static_cast<size_t>(layer));
  const BlockMap& map = groups_[at.group].map;
  StoredLayer stored{map.held(sequence), {}};
  const int64_t length = position(sequence);
  int64_t count = 0;
  for (const int64_t start : stored.starts) {
    count += keys_in_block(start, length);
  }
  at.store.bring_back();
  for (const auto& [name, tensor] : at.store.parts()) {
    Tensor rows =
        Tensor::empty({count, tensor.dim(1), tensor.dim(2)}, tensor.dtype(), tensor.device());
    int64_t row = 0;
    for (const int64_t start : stored.starts) {
      const int64_t slot = map.slot(sequence, start), n = keys_in_block(start, length);
      rows.rows(row, row + n).copy_from(tensor.rows(slot, slot + n));
      row += n;
    }
    stored.parts.emplace_back(name, rows);
  }
  return stored;
}

bool BlockCache::can_restore(int64_t layer, int64_t length, std::span<const int64_t> starts) const {
  const Layer& at = layers_.at(static_cast<size_t>(layer));
  const auto seen = groups_[at.group].map.table().visible(length, length);
  return std::includes(starts.begin(), starts.end(), seen.begin(), seen.end());
}

void BlockCache::restore(int64_t sequence, int64_t length, std::span<const StoredLayer> layers,
                         int64_t from) {
  check(position(sequence) == 0 && std::ssize(layers) == this->layers(),
        "[cache] {} stored layers can't become sequence {} of {} tokens in {} layers",
        layers.size(), sequence, position(sequence), this->layers());
  for (Group& group : groups_) {
    for (const int64_t start : group.map.table().visible(length, length)) {
      group.map.prepare(sequence, start, keys_in_block(start, length));
    }
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const KVStore::Part& part : layers_[i].store.parts()) {
      restore_part(layers_[i], sequence, length, layers[i], part, from);
    }
  }
  lengths_[static_cast<size_t>(sequence)] = length;
}

void BlockCache::restore_part(const Layer& layer, int64_t sequence, int64_t length,
                              const StoredLayer& stored, const KVStore::Part& part,
                              int64_t from) const {
  const auto found = std::find_if(stored.parts.begin(), stored.parts.end(),
                                  [&](const auto& each) { return each.first == part.name; });
  check_input(found != stored.parts.end(), "[cache] the stored {} are missing", part.name);
  const Tensor& rows = found->second;
  int64_t count = 0;
  for (const int64_t start : stored.starts) {
    count += keys_in_block(start, from);
  }
  const Shape shape{count, part.tensor.dim(1), part.tensor.dim(2)};
  check_input(rows.shape() == shape && rows.dtype() == part.tensor.dtype(),
              "[cache] the stored {} are {} {}, but must be {} {}", part.name,
              name_of(rows.dtype()), rows.shape(), name_of(part.tensor.dtype()), shape);
  const BlockMap& map = groups_[layer.group].map;
  const auto seen = map.table().visible(length, length);
  Tensor slots = part.tensor;
  int64_t row = 0;
  for (const int64_t start : stored.starts) {
    if (std::binary_search(seen.begin(), seen.end(), start)) {
      const int64_t slot = map.slot(sequence, start), n = keys_in_block(start, length);
      slots.rows(slot, slot + n).copy_from(rows.rows(row, row + n));
    }
    row += keys_in_block(start, from);
  }
}

}  // namespace headroom::infer
