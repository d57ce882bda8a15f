// Byte-level BPE: GPT-2's pieces, each merged from bytes by ranked rules. Ids on valid UTF-8 equal
// those of Hugging Face's library for the same tokenizer.json; any other bytes round-trip too.
#pragma once

#include "text/gpt2_splitter.h"
#include "text/merge_table.h"
#include "text/tokenizer.h"

namespace headroom::text {

class BpeTokenizer : public Tokenizer {
 public:
  /// `tokens` are bytes by id and hold all 256 single bytes; the rules' place is their rank.
  BpeTokenizer(std::vector<std::string> tokens, std::vector<MergeRule> rules);

  std::string_view kind() const override { return "bpe"; }

  /// Memory beyond the ids is bounded, however long a piece without a space is.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string to_json() const override;

  /// Appends the ids of `piece` taken as one, whatever it holds: the split pattern is not applied.
  /// Returns how many candidate merges were examined; they grow in proportion to the piece.
  size_t encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;

  /// The merges, lowest rank first.
  const std::vector<MergeRule>& rules() const { return rules_; }

 private:
  std::vector<int32_t> merge(std::string_view bytes, size_t& examined) const;
  bool stay_apart(int32_t left, int32_t right, size_t& examined) const;

  std::vector<MergeRule> rules_;
  MergeTable merges_;
  Gpt2Splitter splitter_;
  std::vector<int32_t> byte_ids_;  // id of each single byte
};

}  // namespace headroom::text
