// Reading, dividing and encoding a corpus (DAT-01, DAT-04, DAT-06, DAT-07).
#include "text/corpus.h"

#include <gtest/gtest.h>

#include "tensor/file.h"
#include "tests/run_program.h"
#include "tests/text_support.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

class CorpusTest : public ::testing::Test {
 protected:
  Corpus load(const std::string& content, double val_fraction = 0.1) {
    write_file(folder_ / "my.txt", content);
    return load_corpus(folder_ / "my.txt", val_fraction);
  }

  std::unique_ptr<Tokenizer> tokenizer(std::string_view kind, const Corpus& corpus) {
    return make_tokenizer(kind, kind == "bpe" ? 260 : 0, corpus.split(Split::train), notes_);
  }

  // The message with which a char-level run on this text is refused, or "no InputError".
  std::string refusal(const std::string& content, int64_t block_size) {
    return input_error([&] {
      const Corpus corpus = load(content);
      tokenize_splits(corpus, *tokenizer("char", corpus), block_size);
    });
  }

  headroom::testing::TemporaryFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(CorpusTest, IsDividedInOrderByBytes) {
  const Corpus corpus = load("0123456789abcdefghij");
  EXPECT_EQ(corpus.split(Split::train), "0123456789abcdefgh");
  EXPECT_EQ(corpus.split(Split::val), "ij");
  EXPECT_EQ(corpus.split(Split::all), "0123456789abcdefghij");
  EXPECT_EQ(load("0123456789", 0.25).val_begin, 7u);
  EXPECT_EQ(load("0123456789", 0).split(Split::val), "");
  EXPECT_THROW(load("0123456789", 1), InputError);
  EXPECT_THROW(load("0123456789", -0.1), InputError);
}

TEST_F(CorpusTest, IsDividedBetweenCharacters) {
  // 40 bytes of four-byte characters: 36 bytes is a boundary; one byte more or less in front is
  // not.
  std::string emoji;
  for (int i = 0; i < 10; ++i) emoji += "😀";
  for (const std::string before : {"", "a", "ab", "abc", "é", "中"}) {
    const Corpus corpus = load(before + emoji);
    const std::string_view train = corpus.split(Split::train);
    EXPECT_EQ(first_invalid_byte(train), train.size());
    EXPECT_GE(train.size(), corpus.text.size() * 9 / 10);
    EXPECT_LE(train.size(), corpus.text.size() * 9 / 10 + 3);
  }
  EXPECT_EQ(load(std::string(20, '\x80')).val_begin, 18u);  // no character to finish
}

TEST_F(CorpusTest, GivesTheSameBytesToEveryTokenizer) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the caf\u00e9 at noon\n";
  const Corpus corpus = load(text);
  for (const std::string_view kind : {"char", "byte", "bpe"}) {
    const auto encoder = tokenizer(kind, corpus);
    const TokenizedCorpus tokens = tokenize_splits(corpus, *encoder, 8);
    EXPECT_EQ(tokens.train.bytes, 1620);
    EXPECT_EQ(tokens.val.bytes, 180);
    EXPECT_EQ(encoder->decode(tokens.train.ids) + encoder->decode(tokens.val.ids), text);
    EXPECT_EQ(tokenize(corpus, Split::all, *encoder).bytes, 1800);
  }
}

TEST_F(CorpusTest, RefusesATextShorterThanABlockNamingCountPartAndMinimum) {
  EXPECT_TRUE(holds(refusal("", 64), {"the train part has 0 tokens", "at least 65"}));
  EXPECT_TRUE(holds(refusal("a", 64), {"the train part has 0 tokens", "at least 65"}));
  EXPECT_TRUE(holds(refusal("\n", 64), {"the train part has 0 tokens", "at least 65"}));
  EXPECT_TRUE(holds(refusal("ab", 64), {"the train part has 1 token,", "at least 65"}));
  EXPECT_TRUE(
      holds(refusal(std::string(63, 'a'), 64), {"the train part has 56 tokens", "at least 65"}));
  EXPECT_TRUE(
      holds(refusal(std::string(64, 'a'), 64), {"the train part has 57 tokens", "at least 65"}));
  EXPECT_TRUE(
      holds(refusal(std::string(500, 'a'), 64), {"the val part has 50 tokens", "at least 65"}));
  EXPECT_TRUE(
      holds(refusal(std::string(640, 'a'), 64), {"the val part has 64 tokens", "at least 65"}));
  EXPECT_EQ(refusal(std::string(650, 'a'), 64), "no InputError");
  EXPECT_EQ(refusal(std::string(10000, 'a'), 64), "no InputError");
  EXPECT_NO_THROW(require_length(65, Split::val, 64));
}

TEST_F(CorpusTest, NamesACharacterThatOnlyTheValidationPartHolds) {
  // 100 characters, 101 bytes: é is character 51, Z is character 96 and byte 96.
  const std::string text = std::string(50, 'a') + "\u00e9" + std::string(44, 'b') + "Z" + "aaaa";
  EXPECT_TRUE(
      holds(refusal(text, 4), {"my.txt: 'Z' (U+005A) at character 96 (byte offset 96)", "val part",
                               "3 characters that the training text showed", "byte or bpe"}));
  const Corpus corpus = load(text);
  EXPECT_NO_THROW(tokenize_splits(corpus, *tokenizer("byte", corpus), 2));
  EXPECT_NO_THROW(tokenize_splits(corpus, *tokenizer("bpe", corpus), 2));
}

TEST_F(CorpusTest, NamesACharacterOfAnotherCorpusThatTrainingNeverShowed) {
  const auto trained_on = load("abcabcabcabcabc");
  const auto encoder = tokenizer("char", trained_on);
  const Corpus other = load("abc\tabc");
  EXPECT_TRUE(holds(input_error([&] { tokenize(other, Split::all, *encoder); }),
                    {"U+0009 at character 4 (byte offset 3), in the all part"}));
}

TEST_F(CorpusTest, NamesTheOffsetOfAByteThatIsNotUtf8) {
  const std::string text = std::string(95, 'a') + "\xFF" + "aaaa";
  EXPECT_TRUE(holds(refusal(text, 4), {"byte 0xff at byte offset 95"}));
  EXPECT_TRUE(holds(refusal("ab\xFF" + text, 4), {"byte 0xff at byte offset 2"}));
  const Corpus corpus = load(text);
  ASSERT_EQ(corpus.notes.size(), 1u);
  EXPECT_TRUE(holds(corpus.notes[0], {"not UTF-8 from byte offset 95", "0xff"}));
  const auto encoder = tokenizer("bpe", corpus);
  EXPECT_EQ(encoder->decode(tokenize(corpus, Split::all, *encoder).ids), text);
}

TEST_F(CorpusTest, DropsAByteOrderMarkWithANoteAndKeepsCarriageReturns) {
  const Corpus plain = load("one\r\ntwo\r\n");
  EXPECT_EQ(plain.text, "one\r\ntwo\r\n");
  EXPECT_EQ(plain.notes.size(), 0u);
  const Corpus marked = load("\uFEFFone\r\ntwo\r\n");
  EXPECT_EQ(marked.text, plain.text);
  EXPECT_EQ(marked.hash, plain.hash);
  ASSERT_EQ(marked.notes.size(), 1u);
  EXPECT_TRUE(holds(marked.notes[0], {"byte-order mark"}));
  EXPECT_EQ(load("one\uFEFF").text, "one\uFEFF");  // only at the start
}

TEST_F(CorpusTest, IsNamedByItsFileUnlessItsContentIsKnown) {
  EXPECT_EQ(load("some text").name, "my.txt");
  const std::filesystem::path shakespeare = HEADROOM_SOURCE_DIR "/data/tinyshakespeare.txt";
  if (!std::filesystem::exists(shakespeare)) GTEST_SKIP() << "Tiny Shakespeare isn't here";
  const Corpus known = load(read_file(shakespeare));
  EXPECT_EQ(known.name, "Tiny Shakespeare");
  EXPECT_EQ(known.val_begin, 1003854u);  // the published division
  EXPECT_EQ(load(read_file(shakespeare) + "\n").name, "my.txt");
}

TEST_F(CorpusTest, NamesAFileThatCannotBeRead) {
  EXPECT_TRUE(
      holds(input_error([&] { load_corpus(folder_ / "absent.txt", 0.1); }), {"absent.txt"}));
}

}  // namespace
}  // namespace headroom::text
