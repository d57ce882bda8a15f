// The merges of a BPE and the loop that applies them to one piece.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_json.h"

namespace headroom::text {

class MergeTable {
 public:
  explicit MergeTable(std::span<const MergeRule> rules);

  /// Merges neighbours of `symbols` in place until none has a rule: always the lowest rank, the
  /// leftmost among equals (Sennrich et al. 2016, arXiv 1508.07909). Returns how many candidates it
  /// examined, at most three for each symbol: with the queue's depth the time is O(n log n).
  size_t apply(std::vector<int32_t>& symbols) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t merged = 0;
  };
  const Merge* find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Merge> merges_;
};

/// Two ids as one key.
inline uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace headroom::text
