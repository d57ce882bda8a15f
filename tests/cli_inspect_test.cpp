// headroom inspect: what it says of a run it made, of foreign weights and of damaged files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli_random_run.h"
#include "cli_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;

/// "abc de.\n" has 8 characters; 2 blocks, 32 wide, 4 query heads on 2 KV heads of 8, n_ff 64,
/// an untied head.
constexpr int64_t kBlock = 32 * 8 * (4 + 2) * 2 + 2 * 32 * 64 + 2 * 32;
constexpr int64_t kParameters = 2 * 8 * 32 + 2 * kBlock + 32;

TEST(Inspect, CountsWhatARunHolds) {
  const RandomRun run;
  const auto found = headroom_json({"inspect", run.path().string(), "--params"});
  EXPECT_EQ(found["config"]["model"]["n_kv_head"], 2);
  EXPECT_EQ(found["tokenizer"]["kind"], "char");
  EXPECT_EQ(found["tokenizer"]["vocab_size"], 8);
  ASSERT_EQ(found["checkpoints"].size(), 1U);
  const auto& checkpoint = found["checkpoints"][0];
  EXPECT_EQ(checkpoint["parameters"], kParameters);
  EXPECT_EQ(checkpoint["parameter_bytes"], 4 * kParameters);
  EXPECT_EQ(checkpoint["optimizer_tensors"], 0);
  int64_t decayed = 0;
  for (const auto& tensor : checkpoint["tensors"]) {
    EXPECT_EQ(tensor["dtype"], "f32");
    const bool is_matrix = tensor["shape"].size() == 2;
    const bool in_block = tensor["name"].get<std::string>().starts_with("model.layers.");
    EXPECT_EQ(tensor["decay"], is_matrix) << tensor;
    EXPECT_EQ(tensor["optimizer"], is_matrix && in_block ? "muon" : "adamw") << tensor;
    decayed +=
        is_matrix ? tensor["shape"][0].get<int64_t>() * tensor["shape"][1].get<int64_t>() : 0;
  }
  EXPECT_EQ(decayed, kParameters - 5 * 32);  // all but the norms
}

TEST(Inspect, GivesTheStepAndLossesOfATrainedRun) {
  const TemporaryFolder folder;
  const RunOptions there = {.directory = folder.path()};
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += "to be or not to be\n";
  }
  write_file(folder / "t.txt", text);
  write_file(folder / "c.yaml",
             "model: {n_layer: 1, n_embd: 16, n_ff: 16, block_size: 8}\n"
             "data: {corpus: t.txt}\n"
             "train: {steps: 3, batch_size: 2, warmup_steps: 1, eval_every: 2}\n");
  const auto trained = headroom_json({"train", "c.yaml", "--out", "run"}, there);
  const auto found = headroom_json({"inspect", "run"}, there);
  ASSERT_EQ(found["checkpoints"].size(), 2U);
  EXPECT_EQ(found["checkpoints"][0]["file"], "run/last.safetensors");
  EXPECT_EQ(found["checkpoints"][0]["step"], 3);
  EXPECT_EQ(found["checkpoints"][1]["step"], trained["best_step"]);
  EXPECT_GT(found["checkpoints"][0]["optimizer_tensors"], 0);
  const RunResult shown = headroom_run({"inspect", "run", "--params"}, there);
  EXPECT_THAT(shown.out, HasSubstr("step            3\n"));
  EXPECT_THAT(shown.out, HasSubstr(fmt::format("best val loss   {:.3f} nats per token at step {}",
                                               trained["best_loss_nats"].get<double>(),
                                               trained["best_step"].get<int>())));
  EXPECT_THAT(shown.out, HasSubstr("model.norm.weight "));
}

TEST(Inspect, ReadsWeightsWithoutAConfig) {
  const std::string golden =
      HEADROOM_SOURCE_DIR "/tests/golden/gpt_mqa_rope_rmsnorm_gelu.safetensors";
  const auto found = headroom_json({"inspect", golden});
  EXPECT_FALSE(found.contains("config"));
  EXPECT_THAT(found["checkpoints"][0]["metadata"]["note"].get<std::string>(),
              HasSubstr("20 steps"));
  const RunResult shown = headroom_run({"inspect", golden, "--params"});
  EXPECT_EQ(shown.status, 0);
  EXPECT_THAT(shown.out, HasSubstr("(8, 32)"));
}

TEST(Inspect, NamesTheFileThatIsDamagedOrMissing) {
  const RandomRun run;
  const std::string whole = read_file(run.path() / "last.safetensors");
  for (const size_t bytes : {size_t{0}, size_t{4}, size_t{100}, whole.size() - 1}) {
    write_file(run.path() / "last.safetensors", whole.substr(0, bytes));
    EXPECT_THAT(headroom_refusal({"inspect", run.path().string()}),
                HasSubstr("last.safetensors: "));
  }
  std::filesystem::remove(run.path() / "last.safetensors");
  EXPECT_THAT(headroom_run({"inspect", run.path().string()}).out, HasSubstr("no checkpoint"));
  write_file(run.path() / "tokenizer.json", "{");
  EXPECT_THAT(headroom_refusal({"inspect", run.path().string()}), HasSubstr("tokenizer.json"));
  EXPECT_THAT(headroom_refusal({"inspect", (run.path() / "nothing").string()}),
              HasSubstr("nothing: "));
  EXPECT_THAT(headroom_refusal({"inspect", run.path().parent_path().string()}),
              HasSubstr("is a folder without a config.yaml"));
}

}  // namespace
}  // namespace headroom::testing
