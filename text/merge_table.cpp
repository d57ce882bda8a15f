// A queue of candidate merges over a linked list of symbols. A candidate whose symbols have changed
// since it was queued is recognised when it comes up: its rank is no longer that of its pair.
#include "text/merge_table.h"

#include <functional>
#include <queue>

namespace headroom::text {
namespace {

constexpr int32_t kNone = -1;

struct Candidate {
  int32_t rank;
  int32_t at;  // index of the left symbol
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

}  // namespace

MergeTable::MergeTable(std::span<const MergeRule> rules) {
  merges_.reserve(rules.size());
  for (size_t rank = 0; rank < rules.size(); ++rank) {
    // A pair listed twice counts at its last place, as in Hugging Face's library.
    merges_[pair_key(rules[rank].left, rules[rank].right)] = {static_cast<int32_t>(rank),
                                                              rules[rank].merged};
  }
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

size_t MergeTable::apply(std::vector<int32_t>& symbols) const {
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> next(symbols.size()), previous(symbols.size());
  std::vector<Candidate> found;
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    next[at] = i + 1 < count ? i + 1 : kNone;
    previous[at] = i - 1;  // kNone for the first
    if (i + 1 == count) break;
    if (const Merge* merge = find(symbols[at], symbols[at + 1])) found.push_back({merge->rank, i});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>{},
                                                                               std::move(found));
  const auto offer = [&](int32_t left, int32_t right) {
    if (left == kNone || right == kNone) return;
    const Merge* merge =
        find(symbols[static_cast<size_t>(left)], symbols[static_cast<size_t>(right)]);
    if (merge != nullptr) queue.push({merge->rank, left});
  };

  size_t examined = 0;
  for (; !queue.empty(); ++examined) {
    const Candidate best = queue.top();
    queue.pop();
    const auto left = static_cast<size_t>(best.at);
    if (symbols[left] == kNone || next[left] == kNone) continue;
    const auto right = static_cast<size_t>(next[left]);
    const Merge* merge = find(symbols[left], symbols[right]);
    if (merge == nullptr || merge->rank != best.rank) continue;
    symbols[left] = merge->merged;
    symbols[right] = kNone;
    next[left] = next[right];
    if (next[left] != kNone) previous[static_cast<size_t>(next[left])] = best.at;
    offer(previous[left], best.at);
    offer(best.at, next[left]);
  }
  std::erase(symbols, kNone);
  return examined;
}

}  // namespace headroom::text
