// Bad configs, as `train` and `plan` answer them: CFG-01, CFG-02, CFG-04, CFG-06 and CFG-07.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli_random_run.h"
#include "cli_run.h"

namespace headroom::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// A folder with a config and a corpus, where commands run.
class Configs : public ::testing::Test {
 protected:
  Configs() {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += "to be or not to be\n";
    }
    write_file(folder_ / "t.txt", text);
  }
  void write(const std::string& yaml) { write_file(folder_ / "c.yaml", yaml); }

  /// What both commands say of `config`, which must be the same, with nothing created.
  std::string refusal(const std::string& config = "c.yaml", RunOptions options = {}) {
    options.directory = folder_.path();
    const std::string plan = headroom_refusal({"plan", config}, options);
    EXPECT_EQ(headroom_refusal({"train", config, "--out", "run"}, options), plan);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
    return plan;
  }
  /// The same for a config in YAML.
  std::string refusal_of(const std::string& yaml) {
    write(yaml);
    return refusal();
  }

  TemporaryFolder folder_;
};

TEST_F(Configs, HeadCountsThatDoNotDivideAreRefused) {
  for (const auto& [n_head, n_kv_head] : std::vector<std::pair<std::string, std::string>>{
           {"6", "4"}, {"4", "8"}, {"4", "0"}, {"4", "-1"}, {"8", "3"}}) {
    const std::string message =
        refusal_of("data: {corpus: t.txt}\nmodel: {n_embd: 96, n_head: " + n_head +
                   ", n_kv_head: " + n_kv_head + "}");
    EXPECT_THAT(message, HasSubstr("c.yaml:2: "));
    EXPECT_THAT(message, HasSubstr("n_head is " + n_head));
    EXPECT_THAT(message, HasSubstr("n_kv_head is " + n_kv_head));
  }
  EXPECT_THAT(refusal_of("model: {n_embd: 100, n_head: 8}"), HasSubstr("n_embd is 100"));
}

TEST_F(Configs, HeadCountsThatDoNotDivideAreRefusedForARunToo) {
  const RandomRun run;
  for (const char* command : {"eval", "generate"}) {
    EXPECT_THAT(headroom_refusal({command, run.path().string(), "--set", "model.n_head=6", "--set",
                                  "model.n_kv_head=4"}),
                HasSubstr("model.n_head is 6 and model.n_kv_head is 4"));
  }
}

TEST_F(Configs, HeadCountsThatDivideTrain) {
  write(
      "model: {n_layer: 1, n_head: 8, n_embd: 16, n_ff: 16, block_size: 8}\n"
      "data: {corpus: t.txt}\ntrain: {steps: 1, warmup_steps: 1, batch_size: 2}\n");
  for (const std::string n_kv_head : {"8", "4", "2", "1"}) {
    const RunResult run = headroom_run(
        {"train", "c.yaml", "--out", "run" + n_kv_head, "--set", "model.n_kv_head=" + n_kv_head},
        {.directory = folder_.path()});
    EXPECT_EQ(run.status, 0) << run.err;
  }
}

TEST_F(Configs, UnknownAndMisplacedKeysAreRefusedWithTheirLine) {
  EXPECT_EQ(refusal_of("model:\n  n_head: 4\ntrain:\n  learning_rat: 1e-3\n"),
            "headroom: c.yaml:4: train.learning_rat is no key: did you mean train.lr?\n");
  EXPECT_EQ(
      refusal_of("train:\n  n_kv_head: 4\n"),
      "headroom: c.yaml:2: train.n_kv_head is no key: it belongs to section model or sweep\n");
  for (const char* value : {"[1, 2]", "{}"}) {
    EXPECT_THAT(refusal_of(std::string("model:\n  n_layers: ") + value),
                HasSubstr("c.yaml:2: model.n_layers is no key: did you mean model.n_layer?"));
  }
  write("{}");
  EXPECT_THAT(
      headroom_refusal({"plan", "c.yaml", "--set", "model.heads=4"}, {.directory = folder_.path()}),
      HasSubstr("model.heads is no key"));
}

TEST_F(Configs, ValuesOutOfRangeAreRefusedWithKeyValueAndRange) {
  struct Case {
    const char* yaml;
    const char* found;
    const char* allowed;
  };
  for (const auto& [yaml, found, allowed] :
       {Case{"train: {batch_size: 0}", "train.batch_size is 0", "whole number from 1"},
        {"train: {batch_size: -4}", "train.batch_size is -4", "whole number from 1"},
        {"model: {block_size: 0}", "model.block_size is 0", "whole number from 1"},
        {"model: {n_layer: -1}", "model.n_layer is -1", "whole number from 1"},
        {"train: {steps: -1}", "train.steps is -1", "whole number from 0"},
        {"model: {dropout: 1.5}", "model.dropout is 1.5", "number from 0 to 0.99"},
        {"train: {lr: .nan}", "train.lr is .nan", "number from 0"},
        {"model: {n_head: 4.5}", "model.n_head is 4.5", "whole number"},
        {"model: {n_head: \"four\"}", "model.n_head is \"four\"", "whole number"},
        {"model: {n_head: [4]}", "model.n_head is a list", "whole number"},
        {"train: {device: cuda:1}", "train.device is cuda:1", "cpu or cuda"}}) {
    const std::string message = refusal_of(yaml);
    EXPECT_THAT(message, HasSubstr("c.yaml:1: "));
    EXPECT_THAT(message, HasSubstr(found));
    EXPECT_THAT(message, HasSubstr(allowed));
  }
}

TEST_F(Configs, NoStepsMeansOnlyToEvaluate) {
  write(
      "model: {n_layer: 1, n_embd: 16, n_ff: 16, block_size: 8}\n"
      "data: {corpus: t.txt}\ntrain: {steps: 0, batch_size: 2}\n");
  const auto result =
      headroom_json({"train", "c.yaml", "--out", "run"}, {.directory = folder_.path()});
  EXPECT_EQ(result["step"], 0);
  // An untrained model of the text's nine characters is near ln 9 = 2.197.
  EXPECT_NEAR(result["final_loss_nats"].get<double>(), 2.197, 0.1);
}

TEST_F(Configs, SizesNoMachineCanHoldAreRefusedWithTheBytes) {
  struct Case {
    const char* setting;
    const char* advice;
  };
  write("data: {corpus: t.txt}\n");
  std::string long_text(1 << 20, 'a');
  write_file(folder_ / "t.txt", long_text);
  for (const auto& [setting, advice] :
       {Case{"model.n_layer=2000000000", "lower model.n_layer (now 2000000000)"},
        {"model.n_embd=131072", "lower model.n_embd (now 131072)"},  // above 2^31 parameters
        {"model.n_embd=2147483632", "lower model.n_embd (now 2147483632)"}}) {  // above 2^63
    const std::string message = headroom_refusal(
        {"train", "c.yaml", "--out", "run", "--set", setting}, {.directory = folder_.path()});
    for (const std::string part :
         {"[memory] training needs ", "weights ", "optimizer ", "activations ", " are available",
          "the cache of one sequence", advice}) {
      EXPECT_THAT(message, HasSubstr(part));
    }
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  }
}

TEST_F(Configs, SizesNoMachineCanHoldArePlannedWithoutWrapping) {
  const RunResult run =
      headroom_run({"plan", "gqa", "--set", "model.vocab_size=65", "--set",
                    "model.n_embd=2147483632", "--set", "model.n_layer=2000000000"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("more than 9.2e18"));
  EXPECT_THAT(run.out, HasSubstr("more than 8 EiB"));
  EXPECT_THAT(run.out, Not(ContainsRegex(" -[0-9]")));
  EXPECT_THAT(headroom_refusal({"plan", "gpt-124m", "--json", "--set", "model.n_layer=2000000000"}),
              HasSubstr("too many to list"));
}

TEST_F(Configs, FilesThatCannotBeReadOrParsedEndInTime) {
  RunOptions limits = {.timeout_seconds = 10};
#if !defined(__SANITIZE_ADDRESS__)
  limits.memory_bytes = uint64_t{1} << 30;
#endif
  EXPECT_THAT(refusal("missing.yaml", limits), HasSubstr("missing.yaml: no such config file"));
  std::filesystem::create_directory(folder_ / "folder");
  EXPECT_THAT(refusal("folder", limits), HasSubstr("folder: is a folder without a config.yaml"));

  std::string noise(1'000'000, '\0');
  for (size_t i = 0; i < noise.size(); ++i) {
    noise[i] = static_cast<char>((i * 2654435761U) >> 13);
  }
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "c.yaml:1:1: is empty"},
      {"- a\n- b\n", "c.yaml"},
      {"model:\n\tn_head: 4\n", "c.yaml:2:1: a tab"},
      {std::string(100'000, '['), "c.yaml:1:101: brackets"},
      {noise, "c.yaml:1:"},
      {"model:\n  n_head: (4\n    (5\n", "c.yaml:2"}};
  for (const auto& [yaml, message] : cases) {
    write(yaml);
    EXPECT_THAT(refusal("c.yaml", limits), HasSubstr(message));
  }
}

}  // namespace
}  // namespace headroom::testing
