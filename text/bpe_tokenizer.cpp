// Encoding: split, then merge each piece, remembering the ids of short pieces. A piece too long to
// merge at once goes through in windows whose joins are proved, so the ids are the same.
#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "tensor/check.h"
#include "text/tokenizer_json.h"

namespace headroom::text {
namespace {

constexpr size_t kWindowBytes = 1 << 20;
constexpr size_t kTailTokens = 16;       // a window's last tokens still depend on what follows
constexpr size_t kRememberedBytes = 64;  // longer pieces seldom come again
constexpr size_t kRememberedPieces = 1 << 18;

}  // namespace

BpeTokenizer::BpeTokenizer(std::vector<std::string> token_list, std::vector<MergeRule> rules)
    : Tokenizer(std::move(token_list)),
      rules_(std::move(rules)),
      merges_(rules_),
      byte_ids_(256, -1) {
  for (size_t id = 0; id < tokens().size(); ++id) {
    const std::string& token = tokens()[id];
    if (token.size() == 1) byte_ids_[static_cast<uint8_t>(token[0])] = static_cast<int32_t>(id);
  }
  check(std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end(),
        "[tokenizer] a bpe vocabulary holds every single byte");
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  struct Range {
    size_t begin, count;  // where the piece's ids stand in the result
  };
  std::unordered_map<std::string_view, Range> remembered;
  std::vector<int32_t> ids;
  splitter_.split(text, [&](std::string_view piece) {
    const bool memorable = piece.size() <= kRememberedBytes;
    if (const auto known = memorable ? remembered.find(piece) : remembered.end();
        known != remembered.end()) {
      for (size_t i = 0; i < known->second.count; ++i) ids.push_back(ids[known->second.begin + i]);
      return;
    }
    const size_t begin = ids.size();
    encode_piece(piece, ids);
    if (memorable && remembered.size() < kRememberedPieces) {
      remembered.emplace(piece, Range{begin, ids.size() - begin});
    }
  });
  return ids;
}

// Why windows give the ids of the whole piece: cut a piece at token boundaries, and suppose that
// each pair of neighbouring tokens, merged by itself from bytes, gives those two tokens back. Then
// no merge of the whole piece crosses a boundary: the first that did would see the same neighbours,
// in the same order of ranks, as in the pair, and would have crossed there. So a window may begin
// at the end of any token, if its first token stays apart from the one before. If it doesn't, some
// tokens are taken back and merged again with a window twice as long: this ends at the start of the
// piece at the latest.
size_t BpeTokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  size_t begin = 0, end = std::min(piece.size(), kWindowBytes), take_back = 1, examined = 0;
  while (begin < piece.size()) {
    const std::vector<int32_t> window = merge(piece.substr(begin, end - begin), examined);
    if (ids.size() > first && !stay_apart(ids.back(), window.front(), examined)) {
      for (size_t i = 0; i < take_back && ids.size() > first; ++i) {
        begin -= token_bytes(ids.back()).size();
        ids.pop_back();
      }
      take_back *= 2;
      end = std::min(piece.size(), end + (end - begin));
      continue;
    }
    take_back = 1;
    const size_t tail = end == piece.size() ? 0 : std::min(kTailTokens, window.size() - 1);
    for (size_t i = 0; i + tail < window.size(); ++i) {
      ids.push_back(window[i]);
      begin += token_bytes(window[i]).size();
    }
    end = std::min(piece.size(), end + std::max(kWindowBytes, end - begin));
  }
  return examined;
}

std::vector<int32_t> BpeTokenizer::merge(std::string_view bytes, size_t& examined) const {
  std::vector<int32_t> symbols;
  symbols.reserve(bytes.size());
  for (const char byte : bytes) symbols.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  examined += merges_.apply(symbols);
  return symbols;
}

bool BpeTokenizer::stay_apart(int32_t left, int32_t right, size_t& examined) const {
  std::string both(token_bytes(left));
  both += token_bytes(right);
  return merge(both, examined) == std::vector<int32_t>{left, right};
}

std::string BpeTokenizer::to_json() const {
  return write_tokenizer_json({std::string(kind()), tokens(), rules_});
}

}  // namespace headroom::text
