// The char and byte tokenizers, and the file all kinds share (DAT-04, DAT-06, DAT-07).
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tensor/file.h"
#include "tests/run_program.h"
#include "tests/text_support.h"
#include "text/hash.h"

namespace headroom::text {
namespace {

std::unique_ptr<Tokenizer> made(std::string_view kind, std::string_view text,
                                int64_t vocab_size = 0) {
  std::vector<std::string> notes;
  return make_tokenizer(kind, vocab_size, text, notes);
}

std::string load_error(const std::string& content) {
  const headroom::testing::TemporaryFolder folder;
  write_file(folder / "tokenizer.json", content);
  return input_error([&] { load_tokenizer(folder / "tokenizer.json"); });
}

TEST(CharTokenizer, NumbersTheTrainingTextsCharactersInCodePointOrder) {
  const auto tokenizer = made("char", "caf\u00e9 \U0001F600a\n");
  EXPECT_EQ(tokenizer->kind(), "char");
  EXPECT_EQ(tokenizer->vocab_size(), 7);  // newline, space, a, c, f, é, emoji
  EXPECT_EQ(tokenizer->encode("fac\n\U0001F600\u00e9"), (std::vector<int32_t>{4, 2, 3, 0, 6, 5}));
  EXPECT_EQ(tokenizer->token_bytes(5), "é");
  const std::vector<int32_t> ids = {6, 1, 5};
  EXPECT_EQ(tokenizer->decode(ids), "\U0001F600 é");
}

TEST(CharTokenizer, NamesAnUnknownCharacterItsCodePointAndItsPlace) {
  const auto tokenizer = made("char", "abcdefghijklmnopqrstuvwxyz \u00e9");
  EXPECT_TRUE(holds(input_error([&] { tokenizer->encode("Hello"); }),
                    {"'H' (U+0048) at character 1", "byte offset 0", "28 characters"}));
  EXPECT_TRUE(holds(input_error([&] { tokenizer->encode("\u00e9\u00e9 \U0001F600"); }),
                    {"'😀' (U+1F600) at character 4", "byte offset 5"}));
  EXPECT_TRUE(holds(input_error([&] { tokenizer->encode("a\tb"); }), {"U+0009 at character 2"}));
  EXPECT_EQ(tokenizer->encodable_prefix("ab\u00e9\tb"), 4u);
  EXPECT_EQ(tokenizer->encodable_prefix("ab"), 2u);
}

TEST(CharTokenizer, NamesTheOffsetOfAByteThatIsNotUtf8) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string("plain text\xFFgoes on"), "byte 0xff at byte offset 10"},
      {std::string("caf\xE9 latin-1"), "byte 0xe9 at byte offset 3"},
      {std::string("\xFF\xFEh\0i\0", 6), "byte 0xff at byte offset 0"},  // UTF-16
      {std::string("cut \xE4\xB8"), "byte 0xe4 at byte offset 4"},
  };
  const auto tokenizer = made("char", "plain text cut");
  for (const auto& example : cases) {
    EXPECT_TRUE(holds(input_error([&] { made("char", example.first); }), {example.second}));
  }
  EXPECT_TRUE(holds(input_error([&] { tokenizer->encode("cut \xE4\xB8"); }), {cases[3].second}));
}

TEST(CharTokenizer, TakesATextOfOneCharacterAndAnEmptyOne) {
  EXPECT_EQ(made("char", std::string(10000, 'x'))->vocab_size(), 1);
  EXPECT_EQ(made("char", "")->vocab_size(), 0);
}

TEST(ByteTokenizer, UsesEachByteAsItsId) {
  const auto tokenizer = made("byte", "");
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->encode(std::string_view("\0A\xFF", 3)), (std::vector<int32_t>{0, 65, 255}));
  EXPECT_EQ(tokenizer->token_bytes(255), "\xFF");
}

TEST(Tokenizers, GiveBackByteOrderMarksCarriageReturnsAndBlankLines) {
  for (const std::string text : {"one\n\ntwo\n", "\uFEFFone\n\ntwo\n", "one\r\n\r\ntwo\r\n",
                                 "one\n\n\n\ntwo\n\n\n\n", "no newline"}) {
    for (const auto& tokenizer : {made("char", text), made("byte", text), made("bpe", text, 300)}) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << tokenizer->kind();
    }
  }
}

TEST(Tokenizers, RefuseAnIdOutsideTheVocabulary) {
  const auto tokenizer = made("char", "ab");
  for (const int32_t id : {-1, 2}) {
    const std::vector<int32_t> ids = {0, id};
    EXPECT_THROW(tokenizer->token_bytes(id), Error);
    EXPECT_THROW(tokenizer->decode(ids), Error);
  }
}

TEST(Tokenizers, RefuseAnUnknownKindAndASizeThatDoesNotFit) {
  EXPECT_TRUE(
      holds(input_error([] { made("word", "text"); }), {"char, byte or bpe: got \"word\""}));
  EXPECT_TRUE(holds(input_error([] { made("char", "text", 65); }), {"got 65"}));
  EXPECT_TRUE(holds(input_error([] { made("bpe", "text", 255); }), {"256 or more, got 255"}));
}

TEST(TokenizerFile, BringsEveryKindBackWithTheSameHash) {
  const headroom::testing::TemporaryFolder folder;
  const std::string text = "caf\u00e9 \"quoted\" \\ \U0001F600 the the the\n";
  for (const auto& tokenizer : {made("char", text), made("byte", text), made("bpe", text, 260)}) {
    tokenizer->save(folder / "tokenizer.json");
    const auto loaded = load_tokenizer(folder / "tokenizer.json");
    EXPECT_EQ(loaded->kind(), tokenizer->kind());
    EXPECT_EQ(loaded->vocab_size(), tokenizer->vocab_size());
    EXPECT_EQ(loaded->encode(text), tokenizer->encode(text));
    EXPECT_EQ(loaded->hash(), tokenizer->hash());
    EXPECT_EQ(tokenizer->hash(), content_hash(read_file(folder / "tokenizer.json")));
  }
  EXPECT_NE(made("char", "ab")->hash(), made("char", "ac")->hash());
}

TEST(TokenizerFile, NamesWhatIsWrongWithIt) {
  const nlohmann::json good = nlohmann::json::parse(made("bpe", "the the", 258)->to_json());
  const auto broken = [&](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json file = good;
    file[nlohmann::json::json_pointer(pointer)] = value;
    return load_error(file.dump());
  };
  EXPECT_EQ(load_error(good.dump()), "no InputError");
  EXPECT_TRUE(holds(load_error(""), {"tokenizer.json is not a tokenizer.json"}));
  EXPECT_TRUE(holds(load_error(good.dump().substr(0, 500)), {"is not a tokenizer.json"}));
  EXPECT_TRUE(holds(load_error("{}"), {"pre_tokenizer"}));
  EXPECT_TRUE(holds(load_error("[1]"), {"is not a tokenizer.json"}));
  EXPECT_TRUE(holds(broken("/pre_tokenizer/type", "Whitespace"), {"ByteLevel"}));
  EXPECT_TRUE(holds(broken("/model/type", "WordPiece"), {"only a BPE model"}));
  EXPECT_TRUE(holds(broken("/normalizer", {{"type", "NFC"}}), {"normalizer"}));
  EXPECT_TRUE(holds(broken("/model/vocab/he", 3), {"each once"}));
  EXPECT_TRUE(holds(broken("/model/vocab/he", 1000), {"ids must be 0 to 257"}));
  EXPECT_TRUE(holds(broken("/model/vocab/he", -1), {"ids must be 0 to 257"}));
  EXPECT_TRUE(holds(broken("/model/vocab/he", "x"), {"is not a tokenizer.json"}));
  EXPECT_TRUE(holds(broken("/model/merges/0", "t"), {"not two tokens"}));
  EXPECT_TRUE(holds(broken("/model/merges/0", "t zz"), {"\"zz\", which has no id"}));
  nlohmann::json no_byte = good;
  no_byte["model"]["vocab"].erase("a");
  no_byte["model"]["vocab"]["aaa"] = good["model"]["vocab"]["a"];
  EXPECT_TRUE(holds(load_error(no_byte.dump()), {"no token for byte 0x61"}));
  EXPECT_TRUE(holds(input_error([] { load_tokenizer("/no/such/tokenizer.json"); }),
                    {"/no/such/tokenizer.json"}));
}

TEST(ContentHash, IsXxh3) {
  // Published test value: XXH3_128bits of nothing.
  EXPECT_EQ(content_hash(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(content_hash("a").size(), 32u);
  EXPECT_NE(content_hash("a"), content_hash("b"));
}

}  // namespace
}  // namespace headroom::text
