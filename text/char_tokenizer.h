// One token per character, for the characters the training text showed.
#pragma once

#include <array>
#include <unordered_map>

#include "text/tokenizer.h"

namespace headroom::text {

class CharTokenizer : public Tokenizer {
 public:
  /// The vocabulary is exactly the training text's characters, ids in code point order. Reading the
  /// validation part as well would let it shape the model it is to judge, and would leave
  /// embeddings that training never touches. Throws InputError with the byte offset when the text
  /// is not UTF-8.
  static std::unique_ptr<CharTokenizer> from_text(std::string_view training_text);

  /// `characters` are the tokens by id, each one character, each once.
  explicit CharTokenizer(std::vector<std::string> characters);

  std::string_view kind() const override { return "char"; }
  size_t encodable_prefix(std::string_view text) const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string to_json() const override;

 private:
  int32_t id_of(char32_t code) const;  // -1: unknown
  [[noreturn]] void refuse(std::string_view text, size_t at, size_t chars_before) const;

  std::array<int32_t, 128> ascii_ids_;  // -1: unknown
  std::unordered_map<char32_t, int32_t> other_ids_;
};

}  // namespace headroom::text
