// PCRE2 is told that the text is valid, because this file has checked: its own check would read the
// whole rest of the text again for every piece.
#include "text/gpt2_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tensor/check.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

// White space spelled out (Unicode's White_Space): PCRE2's \s also has U+180E, the reference's has
// not.
#define HEADROOM_SPACE                                             \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}" \
  "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
constexpr char kPattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" HEADROOM_SPACE
                            "\\p{L}\\p{N}]+"
                            "|[" HEADROOM_SPACE "]+(?![^" HEADROOM_SPACE "])|[" HEADROOM_SPACE "]+";
#undef HEADROOM_SPACE

size_t invalid_run(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && decode_char(text, end).length == 0) ++end;
  return end - at;
}

}  // namespace

Gpt2Splitter::Gpt2Splitter() {
  int error = 0;
  size_t offset = 0;
  pattern_.reset(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(kPattern), sizeof kPattern - 1,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr),
                 pcre2_code_free_8);
  check(pattern_ != nullptr, "[tokenizer] PCRE2 refuses the split pattern: error {} at {}", error,
        offset);
  // Without JIT (an unusual processor) pcre2_match interprets the pattern: slower, same pieces.
  pcre2_jit_compile_8(pattern_.get(), PCRE2_JIT_COMPLETE);
}

void Gpt2Splitter::split(std::string_view text,
                         const std::function<void(std::string_view)>& piece) const {
  while (!text.empty()) {
    const size_t valid = first_invalid_byte(text);
    split_valid(text.substr(0, valid), piece);
    text.remove_prefix(valid);
    const size_t invalid = invalid_run(text, 0);
    if (invalid > 0) piece(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

void Gpt2Splitter::split_valid(std::string_view text,
                               const std::function<void(std::string_view)>& piece) const {
  const std::unique_ptr<pcre2_match_data_8, decltype(&pcre2_match_data_free_8)> match(
      pcre2_match_data_create_8(1, nullptr), pcre2_match_data_free_8);
  check(match != nullptr, "[tokenizer] PCRE2 has no memory for a match");
  const auto* subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
  for (size_t at = 0; at < text.size();) {
    const int result = pcre2_match_8(pattern_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                     match.get(), nullptr);
    const size_t end = result < 0 ? at : pcre2_get_ovector_pointer_8(match.get())[1];
    check(end > at, "[tokenizer] PCRE2 finds no piece at byte offset {}: error {}", at, result);
    piece(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace headroom::text
