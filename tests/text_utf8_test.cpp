// Checked UTF-8 and the stream that never lets out half a character (GEN-06).
#include "text/utf8.h"

#include <gtest/gtest.h>

#include "tensor/check.h"

namespace headroom::text {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// Everything a stream gives for `bytes` handed over `step` at a time; no piece may be invalid.
std::string streamed(std::string_view bytes, size_t step) {
  Utf8Stream stream;
  std::string all;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const std::string piece = stream.push(bytes.substr(at, step));
    EXPECT_EQ(first_invalid_byte(piece), piece.size());
    all += piece;
  }
  return all + stream.finish();
}

TEST(Utf8, DecodesTheFirstAndLastCharacterOfEveryLength) {
  const std::vector<std::pair<std::string, char32_t>> cases = {
      {std::string(1, '\0'), 0},
      {"\x7F", 0x7F},
      {"\xC2\x80", 0x80},
      {"\xDF\xBF", 0x7FF},
      {"\xE0\xA0\x80", 0x800},
      {"\xED\x9F\xBF", 0xD7FF},
      {"\xEE\x80\x80", 0xE000},
      {"\xEF\xBF\xBF", 0xFFFF},
      {"\xF0\x90\x80\x80", 0x10000},
      {"\xF4\x8F\xBF\xBF", 0x10FFFF},
  };
  for (const auto& [bytes, code] : cases) {
    const DecodedChar decoded = decode_char(bytes, 0);
    EXPECT_EQ(decoded.code, code);
    EXPECT_EQ(decoded.length, bytes.size());
    std::string encoded;
    append_char(encoded, code);
    EXPECT_EQ(encoded, bytes);
  }
}

TEST(Utf8, RefusesWhatRfc3629Excludes) {
  for (const std::string_view bytes :
       {"\x80", "\xBF", "\xC0\xAF", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFE", "\xFF"}) {
    EXPECT_EQ(decode_char(bytes, 0).length, 0u) << ::testing::PrintToString(bytes);
  }
  std::string text;
  EXPECT_THROW(append_char(text, 0xD800), Error);
  EXPECT_THROW(append_char(text, 0x110000), Error);
}

TEST(Utf8, NamesTheFirstInvalidByte) {
  EXPECT_EQ(first_invalid_byte(""), 0u);
  EXPECT_EQ(first_invalid_byte("héé"), 5u);
  EXPECT_EQ(first_invalid_byte("h\xC3\xA9\xFFz"), 3u);
  EXPECT_EQ(first_invalid_byte("ab\xE2\x82"), 2u);
  EXPECT_EQ(count_chars("h\xC3\xA9\xFFz"), 4u);
}

TEST(Utf8, DescribesACharacterByItsLookAndItsNumber) {
  EXPECT_EQ(describe_char('H'), "'H' (U+0048)");
  EXPECT_EQ(describe_char(0x1F600), "'😀' (U+1F600)");
  EXPECT_EQ(describe_char('\t'), "U+0009");
  EXPECT_EQ(describe_char(0x200B), "U+200B");
}

TEST(Utf8Stream, GivesTheSameForEveryDivisionOfValidAndInvalidBytes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plain", "plain"},
      {"é中😀x", "é中😀x"},
      {"a\xFF"
       "b",
       "a\uFFFDb"},
      {"\xFF\xFE\xFD", "\uFFFD\uFFFD\uFFFD"},
      {"\xE4\xB8"
       "A",
       "\uFFFDA"},                                  // a cut character, then a whole one
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", "\uFFFD😀"},  // likewise
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},       // a surrogate: no byte begins a character
      {"ok\xF0\x9F\x98", "ok\uFFFD"},               // cut at the very end: one mark
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(to_valid_utf8(bytes), expected);
    for (size_t step = 1; step <= bytes.size(); ++step) EXPECT_EQ(streamed(bytes, step), expected);
  }
}

TEST(Utf8Stream, HoldsBackOnlyAnUnfinishedCharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("ab\xF0\x9F"), "ab");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80"), "😀");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, IsNotHeldUpByInvalidBytes) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\x80"), kReplacement);
  EXPECT_EQ(stream.push("\xF0"), "");
  EXPECT_EQ(stream.push("\xF0"), kReplacement);  // the first one can no longer become a character
  EXPECT_EQ(stream.push("A"), std::string(kReplacement) + "A");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, StartsAgainAfterTheEnd) {
  Utf8Stream stream;
  stream.push("\xE4");
  EXPECT_EQ(stream.finish(), kReplacement);
  EXPECT_EQ(stream.push("\xE4\xB8\xAD"), "中");
}

}  // namespace
}  // namespace headroom::text
