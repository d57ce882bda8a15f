// Help, spelling, exit statuses and streams of the program (CFG-08, G1, G2, CKP-07's full device).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cli_run.h"
#include "tensor/file.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kCommands = {
    "train", "sweep", "eval", "generate", "plan", "verify-cache", "convert", "tokenize", "inspect"};

void expect_help(const Arguments& arguments, const std::string& text) {
  const RunResult run = headroom_run(arguments);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, HasSubstr(text));
}

TEST(Help, NeedsNoOtherArgumentAndGoesToStdout) {
  for (const Arguments& arguments : {Arguments{}, {"--help"}, {"-h"}, {"help"}}) {
    expect_help(arguments, "Usage: headroom COMMAND");
  }
  for (const std::string& command : kCommands) {
    expect_help({"--help"}, "  " + command + " ");
    expect_help({command, "--help"}, "Usage: headroom " + command + " [OPTIONS]");
    expect_help({command, "-h"}, "Example:\n  headroom " + command);
  }
  expect_help({"help", "plan"}, "Usage: headroom plan");
}

TEST(Help, ListsDefaultsAndUnits) {
  expect_help({"plan", "--help"}, "--context N=block_size      tokens in the cache of a sequence");
  expect_help({"plan", "--help"}, "--batch N=1                 sequences in the cache");
  expect_help({"generate", "--help"}, "--temperature X=0.8");
  expect_help({"train", "--help"},
              "train.batch_size: 16         sequences per pass (a whole number");
}

TEST(Spelling, AWrongCommandIsAnsweredWithTheNearest) {
  EXPECT_THAT(headroom_refusal({"trian"}), HasSubstr("did you mean 'train'?"));
  EXPECT_THAT(headroom_refusal({"verify_cache"}), HasSubstr("did you mean 'verify-cache'?"));
  EXPECT_THAT(headroom_refusal({"xyzzy"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(headroom_refusal({"--json", "plan"}), HasSubstr("options follow"));
}

TEST(Spelling, AWrongOptionIsAnsweredWithTheNearestBeforeAMissingArgument) {
  EXPECT_THAT(headroom_refusal({"generate", "--max_new_tokens", "5"}),
              HasSubstr("'--max_new_tokens' (headroom generate --help lists them): did you mean "
                        "'--tokens'?"));
  EXPECT_THAT(headroom_refusal({"generate", "--temprature", "1"}),
              HasSubstr("did you mean '--temperature'?"));
  EXPECT_THAT(headroom_refusal({"generate", "--prompt_file=x"}),
              HasSubstr("did you mean '--prompt-file'?"));
  EXPECT_THAT(headroom_refusal({"plan", "-context", "5"}), HasSubstr("did you mean '--context'?"));
  EXPECT_THAT(headroom_refusal({"plan", "gqaa"}), HasSubstr("did you mean 'gqa'?"));
}

TEST(Spelling, WhatAnOptionHoldsIsNotTakenForAnOption) {
  EXPECT_THAT(headroom_refusal({"tokenize", "nothing.yaml", "--text", "--max_new_tokens"}),
              HasSubstr("nothing.yaml"));
}

TEST(Arguments, ThatAreMissingOrTooManyAreRefused) {
  EXPECT_THAT(headroom_refusal({"plan"}), HasSubstr("CONFIG|RUN|PRESET is required"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "gqa-quick"}), HasSubstr("gqa-quick"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--context"}), HasSubstr("--context"));
}

TEST(Arguments, OutOfRangeAreRefusedWithNameValueAndRange) {
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--context", "-5"}),
              HasSubstr("--context is -5, but must be a whole number from 1 to"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--batch", "0"}), HasSubstr("--batch is 0, but"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--batch", "1.5"}),
              HasSubstr("--batch is 1.5, but"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--batch", "99999999999999999999"}),
              HasSubstr("--batch is 99999999999999999999, but"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--threads", "-1"}),
              HasSubstr("--threads is -1, but must be a whole number from 0"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--device", "gpu"}),
              HasSubstr("--device is gpu, but must be cpu, cuda (the first GPU) or cuda:N"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--precision", "fp16"}),
              HasSubstr("--precision is fp16, but must be fp32, bf16 or auto"));
}

TEST(Arguments, OneSetTakesOneValue) {
  const auto plan =
      headroom_json({"plan", "--set", "model.n_kv_head=2", "gqa", "--set", "model.vocab_size=65"});
  EXPECT_EQ(plan["attention_params_per_layer"], 163840);
}

TEST(Version, NamesTheBuildAndWhatItRunsOn) {
  for (const Arguments& arguments : {Arguments{"--version"}, {"plan", "--version"}}) {
    const RunResult run = headroom_run(arguments);
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.err, "");
    EXPECT_TRUE(run.out.starts_with("headroom 0.")) << run.out;
    for (const char* part :
         {"backends      cpu\n", "instructions ", "oneDNN", "threads       1 of "}) {
      EXPECT_THAT(run.out, HasSubstr(part));
    }
  }
}

std::string threads_line(const Arguments& arguments, const RunOptions& options) {
  const RunResult run = run_program(arguments, options);
  return run.out.substr(run.out.find("threads"));
}

TEST(Threads, ComeFromTheOptionThenTheEnvironmentThenTheCores) {
  const RunOptions one = {.environment = {{"OMP_NUM_THREADS", "1"}}};
  const std::string all = threads_line({"plan", "--threads", "0", "--version"}, one);
  EXPECT_EQ(threads_line({"plan", "--version"}, {.environment = {{"OMP_NUM_THREADS", ""}}}), all);
  EXPECT_EQ(threads_line({"--version"}, one).substr(0, 17), "threads       1 o");
  EXPECT_EQ(threads_line({"plan", "--threads", "1", "--version"}, {}).substr(0, 17),
            "threads       1 o");
}

TEST(Threads, MoreThanTheCoresAreCappedWithANote) {
  const RunResult run = headroom_run({"plan", "gpt-124m", "--threads", "1000"});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("--threads 1000 is more than the "));
  const RunResult quiet = headroom_run({"plan", "gpt-124m", "--threads", "1000", "--quiet"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, run.out);
  EXPECT_THAT(
      headroom_run({"plan", "gpt-124m"}, {.environment = {{"OMP_NUM_THREADS", "1000"}}}).err,
      HasSubstr("OMP_NUM_THREADS 1000 is more than the "));
}

TEST(Stdout, ThatIsFullIsNoticed) {
  for (const Arguments& arguments :
       {Arguments{"plan", "gpt-124m"}, {"plan", "gpt-124m", "--json"}, {"--help"}, {"--version"}}) {
    EXPECT_EQ(headroom_refusal(arguments, {.output = "/dev/full"}, 1),
              "headroom: stdout can't be written: No space left on device\n");
  }
}

TEST(Stdout, ThatNobodyReadsEndsTheProgramQuietly) {
  const TemporaryFolder folder;
  const std::string at = folder.path().string();
  const std::string command = "(sleep 0.2; '" HEADROOM_PROGRAM "' plan gpt-124m 2>" + at +
                              "/err; echo $? >" + at + "/status) | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (int tenths = 0; tenths < 300 && !std::filesystem::exists(folder / "status"); ++tenths) {
    ASSERT_EQ(std::system("sleep 0.1"), 0);
  }
  ASSERT_EQ(std::system("sleep 0.1"), 0);
  EXPECT_EQ(read_file(folder / "status"), "0\n");
  EXPECT_EQ(read_file(folder / "err"), "");
}

TEST(Stdout, HoldsOnlyTheResult) {
  const TemporaryFolder folder;  // no corpus here: the vocabulary is a guess, which a note says
  const RunResult run = headroom_run({"plan", "gqa", "--json"}, {.directory = folder.path()});
  EXPECT_EQ(nlohmann::json::parse(run.out)["params"], 4738944);
  EXPECT_THAT(run.err, HasSubstr("vocabulary is taken to be 65"));
  const RunResult quiet =
      headroom_run({"plan", "gqa", "--json", "--quiet"}, {.directory = folder.path()});
  EXPECT_EQ(quiet.out, run.out);
  EXPECT_EQ(quiet.err, "");
}

}  // namespace
}  // namespace headroom::testing
