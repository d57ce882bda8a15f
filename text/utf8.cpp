// The decoder behind every function here is one table row per lead byte: RFC 3629, section 4.
#include "text/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "tensor/check.h"

namespace headroom::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Lead {
  size_t length;         // of the whole character; 0: no character begins so
  uint8_t first, last;   // what the second byte may be (overlong forms and surrogates excluded)
  uint8_t payload_mask;  // bits of the lead byte that belong to the code point
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0, 0x7F};
  if (byte < 0xC2) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, 0x1F};
  if (byte == 0xE0) return {3, 0xA0, 0xBF, 0x0F};
  if (byte == 0xED) return {3, 0x80, 0x9F, 0x0F};
  if (byte < 0xF0) return {3, 0x80, 0xBF, 0x0F};
  if (byte == 0xF0) return {4, 0x90, 0xBF, 0x07};
  if (byte < 0xF4) return {4, 0x80, 0xBF, 0x07};
  if (byte == 0xF4) return {4, 0x80, 0x8F, 0x07};
  return {0, 0, 0, 0};
}

struct Scan {
  DecodedChar character;
  size_t matched;  // bytes that begin a character, whether or not it is finished; at least 1
  bool cut;        // the text ended inside what may still become a character
};

Scan scan_char(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(at));
  if (lead.length == 0) return {{}, 1, false};
  char32_t code = byte(at) & lead.payload_mask;
  for (size_t i = 1; i < lead.length; ++i) {
    if (at + i == text.size()) return {{}, i, true};
    const uint8_t next = byte(at + i);
    const uint8_t first = i == 1 ? lead.first : 0x80;
    const uint8_t last = i == 1 ? lead.last : 0xBF;
    if (next < first || next > last) return {{}, i, false};
    code = (code << 6) | (next & 0x3F);
  }
  return {{code, lead.length}, lead.length, false};
}

}  // namespace

DecodedChar decode_char(std::string_view text, size_t at) { return scan_char(text, at).character; }

size_t first_invalid_byte(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = decode_char(text, at).length;
    if (length == 0) break;
    at += length;
  }
  return at;
}

void append_char(std::string& text, char32_t code) {
  check(code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF),
        "[utf8] no character has code point {:#x}", static_cast<uint32_t>(code));
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += {static_cast<char>(0xC0 | (code >> 6)), tail(0)};
  } else if (code < 0x10000) {
    text += {static_cast<char>(0xE0 | (code >> 12)), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)};
  }
}

size_t count_chars(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    at += std::max<size_t>(decode_char(text, at).length, 1);
  }
  return count;
}

std::string describe_char(char32_t code) {
  std::string number = fmt::format("U+{:04X}", static_cast<uint32_t>(code));
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool invisible = code == 0xAD || (code >= 0x2000 && code <= 0x200F) || code == 0xFEFF ||
                         (code >= 0x2028 && code <= 0x202F);
  if (control || invisible) return number;
  std::string shown;
  append_char(shown, code);
  return fmt::format("'{}' ({})", shown, number);
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_.append(bytes);
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    const Scan scan = scan_char(held_, at);
    if (scan.cut) break;
    out.append(scan.character.length > 0 ? std::string_view(held_).substr(at, scan.matched)
                                         : kReplacement);
    at += scan.matched;
  }
  held_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !held_.empty();
  held_.clear();
  return std::string(cut ? kReplacement : std::string_view());
}

std::string to_valid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out += stream.finish();
}

}  // namespace headroom::text
