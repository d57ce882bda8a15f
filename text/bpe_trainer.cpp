// All distinct pieces lie in one array of symbols, a token's id standing at its first and last
// byte: both neighbours of a token are then found without links. Each pair knows its count and the
// positions where it was seen; a merge visits only those, so the whole training is near linear in
// the text.
#include "text/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "tensor/check.h"
#include "text/gpt2_splitter.h"
#include "text/tokenizer_json.h"

namespace headroom::text {
namespace {

struct PieceCounts {
  std::vector<std::string_view> pieces;  // distinct, in order of appearance
  std::vector<int64_t> counts;
  bool complete = true;  // false: the bound was reached
};

// The longest prefix of at most `limit` bytes that doesn't end within a UTF-8 character.
std::string_view cut(std::string_view piece, size_t limit) {
  if (piece.size() <= limit) return piece;
  const size_t shortest = limit > 3 ? limit - 3 : 0;
  while (limit > shortest && (static_cast<uint8_t>(piece[limit]) & 0xC0) == 0x80) --limit;
  return piece.substr(0, limit);
}

PieceCounts count_pieces(std::string_view text, size_t max_distinct_bytes) {
  PieceCounts result;
  std::unordered_map<std::string_view, size_t> index_of;
  size_t room = max_distinct_bytes;
  Gpt2Splitter().split(text, [&](std::string_view piece) {
    if (const auto known = index_of.find(piece); known != index_of.end()) {
      ++result.counts[known->second];
      return;
    }
    const std::string_view kept = cut(piece, room);
    result.complete = result.complete && kept.size() == piece.size();
    if (kept.empty()) return;
    index_of.emplace(kept, result.pieces.size());
    result.pieces.push_back(kept);
    result.counts.push_back(1);
    room = result.complete ? room - kept.size() : 0;
  });
  return result;
}

class Trainer {
 public:
  explicit Trainer(const PieceCounts& input);

  // Merges the most frequent pair; false when none occurs twice.
  bool step();

  std::vector<std::string>& tokens() { return tokens_; }
  std::vector<MergeRule>& rules() { return rules_; }

 private:
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> positions;  // of the left token; may be out of date
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static constexpr int32_t kNone = -1;  // between pieces, and inside a token

  uint32_t length(int32_t token) const {
    return static_cast<uint32_t>(tokens_[static_cast<size_t>(token)].size());
  }
  int32_t token_for(int32_t left, int32_t right);
  void merge_at(uint32_t at, int32_t left, int32_t right, int32_t merged);
  void add(int32_t left, int32_t right, uint32_t at, int64_t count);
  void remove(int32_t left, int32_t right, int64_t count);

  std::vector<std::string> tokens_ = byte_level_alphabet();
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<MergeRule> rules_;
  std::unordered_map<uint64_t, int32_t> merged_;  // pair -> token, for every rule
  std::vector<int32_t> symbols_;                  // kNone, then each piece followed by kNone
  std::vector<uint32_t> piece_at_;                // the piece of each symbol
  const std::vector<int64_t>& counts_;            // how often each piece occurs
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;  // a count may be too high: it is checked when it comes up
  std::vector<uint64_t> grown_;           // pairs that the current merge made more frequent
};

Trainer::Trainer(const PieceCounts& input) : counts_(input.counts) {
  std::vector<int32_t> byte_ids(256);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    ids_[tokens_[id]] = static_cast<int32_t>(id);
    byte_ids[static_cast<uint8_t>(tokens_[id][0])] = static_cast<int32_t>(id);
  }
  size_t size = 1;
  for (const std::string_view piece : input.pieces) size += piece.size() + 1;
  symbols_.reserve(size);
  piece_at_.reserve(size);
  symbols_.push_back(kNone);
  piece_at_.push_back(0);
  for (uint32_t index = 0; index < input.pieces.size(); ++index) {
    for (const char byte : input.pieces[index]) {
      symbols_.push_back(byte_ids[static_cast<uint8_t>(byte)]);
    }
    symbols_.push_back(kNone);
    piece_at_.resize(symbols_.size(), index);
  }
  for (uint32_t at = 0; at + 1 < symbols_.size(); ++at) {
    add(symbols_[at], symbols_[at + 1], at, counts_.empty() ? 0 : counts_[piece_at_[at]]);
  }
  for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  grown_.clear();
}

void Trainer::add(int32_t left, int32_t right, uint32_t at, int64_t count) {
  if (left == kNone || right == kNone) return;
  const uint64_t key = pair_key(left, right);
  Pair& pair = pairs_[key];
  pair.count += count;
  pair.positions.push_back(at);
  grown_.push_back(key);
}

void Trainer::remove(int32_t left, int32_t right, int64_t count) {
  if (left == kNone || right == kNone) return;
  // Not found: the pair being merged, where it overlaps itself.
  const auto found = pairs_.find(pair_key(left, right));
  if (found == pairs_.end()) return;
  found->second.count -= count;
  if (found->second.count == 0) pairs_.erase(found);
}

// The token that the pair becomes, with a new rule unless the pair has one: a token that two merges
// spell can bring an already merged pair back.
int32_t Trainer::token_for(int32_t left, int32_t right) {
  const auto known = merged_.find(pair_key(left, right));
  if (known != merged_.end()) return known->second;
  std::string bytes = tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)];
  const auto [entry, is_new] = ids_.try_emplace(bytes, static_cast<int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back(std::move(bytes));
  merged_[pair_key(left, right)] = entry->second;
  rules_.push_back({left, right, entry->second});
  return entry->second;
}

bool Trainer::step() {
  while (!queue_.empty() && queue_.top().count >= 2) {
    const Candidate best = queue_.top();
    queue_.pop();
    const auto found = pairs_.find(best.key);
    if (found == pairs_.end()) continue;
    if (found->second.count != best.count) {
      queue_.push({found->second.count, best.key});
      continue;
    }
    std::vector<uint32_t> positions = std::move(found->second.positions);
    pairs_.erase(found);
    std::sort(positions.begin(), positions.end());
    const auto left = static_cast<int32_t>(best.key >> 32);
    const auto right = static_cast<int32_t>(best.key & 0xFFFFFFFF);
    const int32_t merged = token_for(left, right);
    for (const uint32_t at : positions) merge_at(at, left, right, merged);
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const uint64_t key : grown_) {
      if (const auto pair = pairs_.find(key); pair != pairs_.end()) {
        queue_.push({pair->second.count, key});
      }
    }
    grown_.clear();
    return true;
  }
  return false;
}

void Trainer::merge_at(uint32_t at, int32_t left, int32_t right, int32_t merged) {
  const uint32_t middle = at + length(left);
  // Out of date: one of the two has become part of another token.
  if (symbols_[at] != left || symbols_[middle] != right) return;
  const uint32_t end = middle + length(right);
  if (symbols_[middle - 1] != left || symbols_[end - 1] != right) return;
  const int64_t count = counts_[piece_at_[at]];
  const int32_t before = symbols_[at - 1], after = symbols_[end];
  remove(before, left, count);
  remove(right, after, count);
  symbols_[middle - 1] = symbols_[middle] = kNone;
  symbols_[at] = symbols_[end - 1] = merged;
  if (before != kNone) add(before, merged, at - length(before), count);
  add(merged, after, at, count);
}

}  // namespace

std::unique_ptr<BpeTokenizer> train_bpe(std::string_view text, int64_t vocab_size,
                                        std::vector<std::string>& notes,
                                        size_t max_distinct_bytes) {
  check_input(
      vocab_size >= 256,
      "[tokenizer] bpe starts from the 256 bytes: data.vocab_size must be 256 or more, got {}",
      vocab_size);
  const PieceCounts input = count_pieces(text, max_distinct_bytes);
  if (!input.complete) {
    notes.push_back(fmt::format(
        "bpe: the text has more than {} MiB of different words (or no spaces); the merges were "
        "learned from the first {} MiB of them",
        max_distinct_bytes >> 20, max_distinct_bytes >> 20));
  }
  Trainer trainer(input);
  while (static_cast<int64_t>(trainer.tokens().size()) < vocab_size && trainer.step()) {
  }
  if (static_cast<int64_t>(trainer.tokens().size()) < vocab_size) {
    notes.push_back(fmt::format(
        "bpe: {} tokens instead of {}: no pair of tokens is left that occurs twice in the text",
        trainer.tokens().size(), vocab_size));
  }
  return std::make_unique<BpeTokenizer>(std::move(trainer.tokens()), std::move(trainer.rules()));
}

}  // namespace headroom::text
