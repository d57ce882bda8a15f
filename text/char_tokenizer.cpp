// ASCII goes through a table, the rest through a map: a corpus is encoded in one pass.
#include "text/char_tokenizer.h"

#include <set>

#include "tensor/check.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace headroom::text {

std::unique_ptr<CharTokenizer> CharTokenizer::from_text(std::string_view training_text) {
  std::set<char32_t> codes;
  for (size_t at = 0; at < training_text.size();) {
    const DecodedChar next = decode_char(training_text, at);
    check_input(
        next.length > 0,
        "[tokenizer] a char tokenizer needs UTF-8: byte {:#04x} at byte offset {} belongs to "
        "no character; convert the file or use tokenizer byte or bpe, which take any bytes",
        static_cast<uint8_t>(training_text[at]), at);
    codes.insert(next.code);
    at += next.length;
  }
  std::vector<std::string> characters;
  for (const char32_t code : codes) append_char(characters.emplace_back(), code);
  return std::make_unique<CharTokenizer>(std::move(characters));
}

CharTokenizer::CharTokenizer(std::vector<std::string> characters)
    : Tokenizer(std::move(characters)) {
  ascii_ids_.fill(-1);
  for (size_t id = 0; id < tokens().size(); ++id) {
    const char32_t code = decode_char(tokens()[id], 0).code;
    (code < ascii_ids_.size() ? ascii_ids_[code] : other_ids_[code]) = static_cast<int32_t>(id);
  }
}

int32_t CharTokenizer::id_of(char32_t code) const {
  if (code < ascii_ids_.size()) return ascii_ids_[code];
  const auto found = other_ids_.find(code);
  return found == other_ids_.end() ? -1 : found->second;
}

size_t CharTokenizer::encodable_prefix(std::string_view text) const {
  size_t at = 0;
  while (at < text.size()) {
    const DecodedChar next = decode_char(text, at);
    if (next.length == 0 || id_of(next.code) < 0) break;
    at += next.length;
  }
  return at;
}

std::vector<int32_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const DecodedChar next = decode_char(text, at);
    const int32_t id = next.length > 0 ? id_of(next.code) : -1;
    if (id < 0) refuse(text, at, ids.size());
    ids.push_back(id);
    at += next.length;
  }
  return ids;
}

void CharTokenizer::refuse(std::string_view text, size_t at, size_t chars_before) const {
  const DecodedChar next = decode_char(text, at);
  check_input(
      next.length > 0,
      "[tokenizer] a char tokenizer needs UTF-8: byte {:#04x} at byte offset {} belongs to no "
      "character",
      static_cast<uint8_t>(text[at]), at);
  throw InputError(
      fmt::format("[tokenizer] {} at character {} of the text (byte offset {}) is none of the {} "
                  "characters that "
                  "this char tokenizer saw in training; a model trained with tokenizer byte or bpe "
                  "takes any text",
                  describe_char(next.code), chars_before + 1, at, vocab_size()));
}

std::string CharTokenizer::to_json() const {
  return write_tokenizer_json({std::string(kind()), tokens(), {}});
}

}  // namespace headroom::text
