// UTF-8, checked: one character at a time, a whole text, and a stream that arrives in pieces.
// What counts as valid is RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom::text {

/// A character and the bytes it takes; length 0 where the bytes are not valid UTF-8.
struct DecodedChar {
  char32_t code = 0;
  size_t length = 0;
};

/// The character that begins at byte `at` (at < text.size()).
DecodedChar decode_char(std::string_view text, size_t at);

/// Byte offset of the first byte that belongs to no valid character; text.size() when all are
/// valid.
size_t first_invalid_byte(std::string_view text);

/// Appends one character. Throws Error for a surrogate or a number above U+10FFFF.
void append_char(std::string& text, char32_t code);

/// Characters in `text`, a byte that belongs to none counting as one.
size_t count_chars(std::string_view text);

/// For messages: "'é' (U+00E9)", or "U+0009" for what can't be shown.
std::string describe_char(char32_t code);

/// Makes valid UTF-8 out of bytes that arrive in pieces, as generated tokens do, and never lets out
/// part of a character. Every maximal run of bytes that begins a character and doesn't finish it,
/// and every other stray byte, becomes one U+FFFD (Unicode 15, section 3.9, "substitution of
/// maximal subparts") as soon as that is certain, so invalid bytes hold nothing up.
class Utf8Stream {
 public:
  /// Characters that `bytes` completes. At most the last three bytes are held back.
  std::string push(std::string_view bytes);

  /// The text has ended: a character that was cut at the very end becomes one U+FFFD.
  std::string finish();

 private:
  std::string held_;
};

/// A whole text through Utf8Stream: what its pieces give, joined.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace headroom::text
