// headroom tokenize: ids and pieces against ones worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_random_run.h"
#include "cli_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;

/// A folder with a config whose training text has the characters " ehlo", ids in that order.
class Tokenize : public ::testing::Test {
 protected:
  Tokenize() {
    write_file(folder_ / "t.txt", "hello hello hello hello hello hello\n");
    write_file(folder_ / "c.yaml", "data: {corpus: t.txt}");
    there_.directory = folder_.path();
  }
  nlohmann::json ids(Arguments more) {
    more.insert(more.begin(), {"tokenize", "c.yaml"});
    return headroom_json(more, there_)["ids"];
  }
  std::string refusal(Arguments more) {
    more.insert(more.begin(), {"tokenize", "c.yaml"});
    return headroom_refusal(more, there_);
  }
  TemporaryFolder folder_;
  RunOptions there_;
};

TEST_F(Tokenize, GivesIdsAndPieces) {
  const auto result = headroom_json({"tokenize", "c.yaml", "--text", "hello o"}, there_);
  EXPECT_EQ(result, nlohmann::json::parse(R"({
    "tokenizer": "char", "vocab_size": 5, "tokens": 7, "characters": 7, "bytes": 7,
    "bytes_per_token": 1.0, "ids": [2, 1, 3, 3, 4, 0, 4],
    "pieces": ["h", "e", "l", "l", "o", " ", "o"]})"));
}

TEST_F(Tokenize, ShowsWhatCannotBePrinted) {
  const RunResult run = headroom_run(
      {"tokenize", "c.yaml", "--set", "data.tokenizer=byte", "--text", "a\n\"\xC3\xA9"}, there_);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out,
            "id   piece\n"
            "97   \"a\"\n"
            "10   \"\\n\"\n"
            "34   \"\\\"\"\n"
            "195  \"\\xC3\"\n"
            "169  \"\\xA9\"\n"
            "5 tokens, 4 characters, 5 bytes, 1.00 bytes per token (byte, vocabulary 256)\n");
}

TEST_F(Tokenize, LearnsAByteLevelBpe) {
  const auto result = headroom_json({"tokenize", "c.yaml", "--set", "data.tokenizer=bpe", "--set",
                                     "data.vocab_size=300", "--text", " hello hello"},
                                    there_);
  EXPECT_EQ(result["pieces"], (nlohmann::json{" hello", " hello"}));
  EXPECT_EQ(result["bytes_per_token"], 6.0);
}

TEST_F(Tokenize, ReadsFilesAndStdin) {
  write_file(folder_ / "f.txt", "ole");
  EXPECT_EQ(ids({"--file", "f.txt"}), (nlohmann::json{4, 3, 1}));
  there_.input = "he";
  EXPECT_EQ(ids({"--file", "-"}), (nlohmann::json{2, 1}));
}

TEST_F(Tokenize, NoTextIsNoTokens) {
  const auto result = headroom_json({"tokenize", "c.yaml", "--text", ""}, there_);
  EXPECT_EQ(result["ids"], nlohmann::json::array());
  EXPECT_EQ(result["bytes_per_token"], nullptr);
}

TEST_F(Tokenize, UsesTheTokenizerOfARun) {
  const RandomRun run;  // made from "abc de.\n"
  const auto result = headroom_json({"tokenize", run.path().string(), "--text", "abc"});
  EXPECT_EQ(result["vocab_size"], 8);
  EXPECT_EQ(result["ids"], (nlohmann::json{3, 4, 5}));  // after "\n", " " and "."
}

TEST_F(Tokenize, RefusesWhatItCannotEncodeOrRead) {
  EXPECT_THAT(refusal({"--text", "hex"}), HasSubstr("'x' (U+0078) at character 3"));
  EXPECT_THAT(refusal({}), HasSubstr("give either --text or --file"));
  EXPECT_THAT(refusal({"--text", "h", "--file", "f.txt"}), HasSubstr("either --text or --file"));
  EXPECT_THAT(refusal({"--file", "nothing.txt"}), HasSubstr("nothing.txt"));
  EXPECT_THAT(refusal({"--text", "h", "--set", "data.corpus=\"\""}), HasSubstr("data.corpus"));
  // A text in brackets is one text.
  EXPECT_THAT(refusal({"--text", "[h,e]"}), HasSubstr("'[' (U+005B)"));
}

}  // namespace
}  // namespace headroom::testing
