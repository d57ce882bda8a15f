// What reaches the reader: whole characters (GEN-06), nothing of a stop text and nothing after it.
#include "infer/text_stream.h"

#include <gtest/gtest.h>

#include "tensor/check.h"

namespace headroom::infer {
namespace {

/// Pushes the pieces; every one that comes out must be valid UTF-8 by itself.
std::string all(TextStream& stream, const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) {
    const std::string shown = stream.push(piece);
    EXPECT_EQ(text::first_invalid_byte(shown), shown.size()) << piece;
    text += shown;
  }
  return text + stream.finish();
}

TEST(TextStream, NeverShowsPartOfACharacter) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x98\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.push("\xE4\xB8"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(TextStream, ACharacterMayBeginInThePrompt) {
  TextStream stream;
  EXPECT_EQ(stream.prompt("x\xC3"), "x");
  EXPECT_EQ(stream.push("\xA9"), "\xC3\xA9");
}

TEST(TextStream, InvalidBytesHoldNothingUp) {
  TextStream stream;
  EXPECT_EQ(stream.push("\xFF"), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push("\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TextStream, EndsBeforeAStopTextInAnyPieces) {
  const std::string text = "one two END three";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    TextStream stream({"END"});
    std::string shown;
    for (size_t at = 0; at < text.size() && !stream.stopped(); at += piece) {
      shown += stream.push(text.substr(at, piece));
      EXPECT_EQ(shown.find('E'), std::string::npos);
    }
    EXPECT_TRUE(stream.stopped());
    EXPECT_EQ(shown + stream.push("more") + stream.finish(), "one two ");
  }
}

TEST(TextStream, ShowsWhatOnlyLookedLikeAStopText) {
  TextStream stream({"ENDING", "\n\n"});
  EXPECT_EQ(all(stream, {"a E", "N", "D", "S\n", "b"}), "a ENDS\nb");
  EXPECT_FALSE(stream.stopped());
  TextStream cut({"ENDING"});
  EXPECT_EQ(all(cut, {"a END"}), "a END");
}

TEST(TextStream, TheFirstOfSeveralStopTextsCounts) {
  TextStream stream({"cd", "b"});
  EXPECT_EQ(all(stream, {"abcd"}), "a");
  TextStream repeated({"aab"});
  EXPECT_EQ(all(repeated, {"a", "a", "a", "b"}), "a");
}

TEST(TextStream, APromptIsNotSearched) {
  TextStream stream({"ab"});
  std::string shown = stream.prompt("xab");
  shown += stream.prompt("a");
  shown += stream.push("b");
  EXPECT_EQ(shown, "xabab");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, RefusesAnEmptyStopText) { EXPECT_THROW(TextStream({""}), InputError); }

}  // namespace
}  // namespace headroom::infer
