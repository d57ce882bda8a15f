// Cases that take several commands: a log that nobody reads, corpora of one character or of bytes
// that are no text, losses that are no numbers, another precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli_run.h"
#include "tensor/file.h"
#include "tensor/safetensors.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;

/// A folder with a corpus and a config that trains in a moment.
class Cases : public ::testing::Test {
 protected:
  Cases() {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += "to be or not to be\n";
    }
    write_file(folder_ / "t.txt", text);
    write_file(folder_ / "c.yaml",
               "model: {n_layer: 1, n_head: 2, n_kv_head: 1, n_embd: 16, n_ff: 16, block_size: 8}\n"
               "data: {corpus: t.txt}\n"
               "train: {steps: 40, warmup_steps: 1, batch_size: 4, eval_every: 20, save_every: 1,\n"
               "        precision: fp32, threads: 1}\n");
    there_.directory = folder_.path();
  }
  static Arguments train(const Arguments& more) {
    Arguments all = {"train", "c.yaml", "--out", "run", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TemporaryFolder folder_;
  RunOptions there_;
};

/// UX-01: `headroom train ... 2>&1 | head -5` ends quietly, with the work saved.
TEST_F(Cases, ALogThatNobodyReadsEndsTheRunAndSavesIt) {
  const std::string command = "cd '" + folder_.path().string() +
                              "' && (OMP_NUM_THREADS=1 timeout 60 '" HEADROOM_PROGRAM
                              "' train c.yaml --out run --set train.steps=20000"
                              " --set train.save_every=0 --set train.eval_every=0 2>&1;"
                              " echo $? >status) | head -5 >log";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string log = read_file(folder_ / "log");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 5) << log;
  EXPECT_EQ(read_file(folder_ / "status"), "130\n");
  const SafetensorsFile saved(folder_ / "run" / "last.safetensors");
  EXPECT_GE(std::stoll(saved.metadata().at("step")), 1);
}

/// A message that can't be shown leaves the exit status as it is.
TEST_F(Cases, AMessageThatNobodyReadsKeepsTheStatus) {
  const std::string command = "cd '" + folder_.path().string() +
                              "' && (sleep 0.2; '" HEADROOM_PROGRAM
                              "' train missing.yaml 2>&1; echo $? >status) | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_file(folder_ / "status"), "2\n");
}

/// DAT-01 and GEN-03: a vocabulary of 1, with every way of choosing from it.
TEST_F(Cases, OneCharacterIsLearnedAndGenerated) {
  write_file(folder_ / "t.txt", std::string(10000, 'a'));
  EXPECT_NEAR(headroom_json(train({}), there_)["best_loss_nats"].get<double>(), 0, 1e-6);
  for (const char* top_k : {"0", "1", "2", "64", "100000"}) {
    const RunResult text = headroom_run({"generate", "run", "--prompt", "aa", "--tokens", "6",
                                         "--top-k", top_k, "--top-p", "1e-9", "--min-p", "1"},
                                        there_);
    EXPECT_EQ(text.status, 0) << text.err;
    EXPECT_EQ(text.out, "aaaaaaaa\n");
  }
}

/// DAT-04 and DAT-06: what a character model has not seen, by name and place.
TEST_F(Cases, PromptsOutsideTheVocabularyAreRefusedByCharacterAndPlace) {
  ASSERT_EQ(headroom_run(train({}), there_).status, 0);
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"Hello", {"'H' (U+0048)", "character 1", "byte offset 0"}},
      {"to\tbe", {"U+0009", "character 3", "byte offset 2"}},
      {"\xF0\x9F\x98\x80", {"U+1F600", "byte offset 0"}},
      {"be \xE2\x82", {"byte 0xe2 at byte offset 3"}}};
  for (const auto& [prompt, parts] : cases) {
    const std::string message = headroom_refusal({"generate", "run", "--prompt", prompt}, there_);
    for (const std::string& part : parts) {
      EXPECT_THAT(message, HasSubstr(part));
    }
  }
}

/// DAT-06: each file as it is under byte-level tokenizers, refused with the offset by `char`.
TEST_F(Cases, BytesThatAreNoTextAreTakenAsTheyAreOrRefusedByOffset) {
  const std::string good = read_file(folder_ / "t.txt"), half = good.substr(0, good.size() / 2);
  const std::vector<std::pair<std::string, size_t>> files = {
      {half + "\xFF" + good, half.size()},              // one byte in the middle
      {"caf\xE9 " + good, 3},                           // Latin-1
      {std::string("\xFF\xFEt\0o\0 \0", 8) + good, 0},  // UTF-16
      {half + "\xE2\x82", half.size()}};                // ends within a character
  for (const auto& [bytes, offset] : files) {
    write_file(folder_ / "t.txt", bytes);
    EXPECT_THAT(headroom_refusal(train({}), there_), HasSubstr(fmt::format("offset {}", offset)));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
    const Arguments tokenize = {"tokenize", "c.yaml", "--file",
                                "t.txt",    "--set",  "data.tokenizer=byte"};
    const std::vector<int32_t> ids = headroom_json(tokenize, there_)["ids"];
    EXPECT_TRUE(std::ranges::equal(ids, bytes, {}, {}, [](char c) {
      return static_cast<int32_t>(static_cast<unsigned char>(c));
    }));
    const RunResult trained = headroom_run(
        {"train", "c.yaml", "--out", fmt::format("run{}", bytes.size()), "--set",
         "data.tokenizer=bpe", "--set", "data.vocab_size=270", "--set", "train.steps=1"},
        there_);
    EXPECT_EQ(trained.status, 0) << trained.err;
  }
}

/// TRN-07: the loss is named with its step and rate, and the last good weights stay.
TEST_F(Cases, ALossThatIsNoNumberEndsTheRunWithStatus1) {
  const Arguments wild = {"--set", "train.optimizer=adamw", "--set", "train.lr=100000",
                          "--set", "model.mlp=relu2",       "--set", "train.steps=200"};
  const std::string message = headroom_refusal(train(wild), there_, 1);
  EXPECT_THAT(message, HasSubstr("at step "));
  EXPECT_THAT(message, HasSubstr("at a rate of 1"));
  EXPECT_EQ(headroom_run({"eval", "run/last.safetensors"}, there_).status, 0);
}

/// CKP-05: the same checkpoint in another precision.
TEST_F(Cases, EvaluationInBf16IsCloseToThatInFp32) {
  ASSERT_EQ(headroom_run(train({}), there_).status, 0);
  const auto loss = [&](const char* precision) {
    return headroom_json({"eval", "run", "--precision", precision}, there_)["loss_nats"]
        .get<double>();
  };
  const double exact = loss("fp32"), rounded = loss("bf16");
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 0.005 * exact);
}

}  // namespace
}  // namespace headroom::testing
