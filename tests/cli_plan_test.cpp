// headroom plan against numbers worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli_random_run.h"
#include "cli_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;

std::string plan_text(Arguments more) {
  more.insert(more.begin(), {"plan", "gqa", "--set", "model.vocab_size=65"});
  const RunResult run = headroom_run(more);
  EXPECT_EQ(run.status, 0) << run.err;
  return run.out;
}

nlohmann::json plan_json(const std::string& config, Arguments more) {
  more.insert(more.begin(), {"plan", config});
  return headroom_json(more);
}

TEST(Plan, HasTheKeysOfTheContractAndNoOthers) {
  const auto plan = plan_json("gpt-124m", {});
  std::vector<std::string> keys;
  for (const auto& [key, value] : plan.items()) {
    keys.push_back(key);
  }
  EXPECT_EQ(keys, (std::vector<std::string>{
                      "activation_bytes", "attention_params_per_layer", "cache_bytes_per_token",
                      "cache_bytes_per_token_per_layer", "optimizer_bytes", "params",
                      "params_by_tensor", "reliefs", "weights_bytes"}));
}

TEST(Plan, CountsTheParametersAndCacheOfEveryKVHeadCount) {
  struct Expected {
    int64_t n_kv_head, attention, cache_per_layer;
  };
  for (const auto& [n_kv_head, attention, cache] :
       {Expected{8, 262144, 2048}, {4, 196608, 1024}, {2, 163840, 512}, {1, 147456, 256}}) {
    const auto plan = plan_json("gqa", {"--set", "model.vocab_size=65", "--set",
                                        "model.n_kv_head=" + std::to_string(n_kv_head)});
    EXPECT_EQ(plan["attention_params_per_layer"], attention);
    EXPECT_EQ(plan["cache_bytes_per_token_per_layer"], cache);
    EXPECT_EQ(plan["cache_bytes_per_token"], 6 * cache);
    // Outside attention: the MLP, two norms and two qk-norms a block, the last norm, the embedding.
    EXPECT_EQ(plan["params"], 6 * (attention + 2 * 256 * 1024 + 2 * 256 + 2 * 32) + 256 + 65 * 256);
  }
}

TEST(Plan, CountsThe124MModel) {
  const auto plan = plan_json("gpt-124m", {});
  EXPECT_EQ(plan["params"], 123551232);
  int64_t sum = 0;
  for (const auto& [name, count] : plan["params_by_tensor"].items()) {
    sum += count.get<int64_t>();
  }
  EXPECT_EQ(sum, 123551232);
  EXPECT_EQ(plan["params_by_tensor"]["model.layers.11.self_attn.k_proj.weight"], 768 * 768);
  EXPECT_EQ(plan["weights_bytes"], 4 * 123551232LL);
}

TEST(Plan, CountsTheOptimizersState) {
  const Arguments common = {"--set", "model.vocab_size=65"};
  Arguments adamw = common;
  adamw.insert(adamw.end(), {"--set", "train.optimizer=adamw", "--set", "train.lr=0.003"});
  EXPECT_EQ(plan_json("gqa", adamw)["optimizer_bytes"], 8 * 4738944);
  // Muon: 4 bytes for each of the 6 * (262144 + 524288) elements of hidden matrices, 8 for others.
  EXPECT_EQ(plan_json("gqa", common)["optimizer_bytes"], 4 * 4718592 + 8 * (4738944 - 4718592));
}

TEST(Plan, ActivationsShrinkWithPrecision) {
  const Arguments vocabulary = {"--set", "model.vocab_size=65", "--precision"};
  Arguments fp32 = vocabulary, bf16 = vocabulary;
  fp32.emplace_back("fp32");
  bf16.emplace_back("bf16");
  const int64_t wide = plan_json("gqa", fp32)["activation_bytes"];
  const int64_t narrow = plan_json("gqa", bf16)["activation_bytes"];
  // Per token: 6 blocks of 4 C + 3 (H + K) D + 2 F elements and 4 (H + 2) bytes, once 7 C + 2 F;
  // 1024 rows of logits.
  const int64_t elements = 6 * (4 * 256 + 3 * 16 * 32 + 2 * 1024) + 7 * 256 + 2 * 1024;
  EXPECT_EQ(wide - narrow, 2 * elements * 4096);
}

TEST(Plan, ShowsEachFormulaWithItsFactors) {
  const std::string text = plan_text({"--context", "4096", "--batch", "8", "--dtype", "bf16"});
  EXPECT_THAT(text, HasSubstr("  2 * n_layer 6 * n_kv_head 8 * head_dim 32 * tokens 1 * "
                              "batch 1 * bytes 2 = 6144 bytes"));
  EXPECT_THAT(text, HasSubstr("192.0 MiB  2 * n_layer 6 * n_kv_head 8 * head_dim 32 * tokens 4096 "
                              "* batch 8 * bytes 2 = 201326592 bytes"));
  // 6 * (6 * 786432 + 65 * 256 + 6 * 256 * 257) * 4096
  EXPECT_THAT(text, HasSubstr("A training step of 4,096 tokens: 126.1 GFLOP"));
  EXPECT_THAT(headroom_run({"plan", "gpt-124m", "--set", "train.batch_size=512", "--set",
                            "train.grad_accumulation=1"})
                  .out,
              HasSubstr("524,288 tokens: 418.3 TFLOP"));
  EXPECT_THAT(text, HasSubstr("4,735,232 + n_layer 6 * n_head 8 * head_dim 32 * (block_size 256 + "
                              "1)) * tokens 4096"));
}

TEST(Plan, ComparesTheModelWithEveryOtherDivisorOfItsHeads) {
  const std::string text = plan_text({"--set", "model.n_kv_head=2"});
  EXPECT_THAT(text,
              HasSubstr("n_kv_head  parameters  attention/layer  cache/token  cache of 256 * 1\n"
                        "        2   4,149,120          163,840      3.0 KiB         768.0 KiB\n"
                        "        8   4,738,944          262,144     12.0 KiB           3.0 MiB\n"
                        "        4   4,345,728          196,608      6.0 KiB           1.5 MiB\n"
                        "        1   4,050,816          147,456      1.5 KiB         384.0 KiB\n"));
}

TEST(Plan, ShowsWaysToASmallerCacheBesideFewerHeads) {
  const auto reliefs = plan_json("gqa", {"--set", "model.vocab_size=65", "--context", "4096",
                                         "--batch", "2", "--dtype", "bf16"})["reliefs"];
  ASSERT_EQ(reliefs.size(), 4U);
  // A latent of 2 * 32 and 16 rotated, in 6 layers.
  EXPECT_EQ(reliefs[0]["name"], "mla, kv_rank 64 and 16 rotated");
  EXPECT_EQ(reliefs[0]["cache_bytes_per_token"], 6 * (64 + 16) * 2);
  EXPECT_EQ(reliefs[0]["cache_bytes"], 6 * (64 + 16) * 2 * 4096 * 2);
  EXPECT_EQ(reliefs[0]["decode_read_bytes"], 6 * (64 + 16) * 2 * 4096 * 2);
  // A window of 64 touches two blocks of 64 at most.
  const int64_t token = 6 * 2 * 8 * 32 * 2;
  EXPECT_EQ(reliefs[1]["name"], "window of 64 in 6 of 6 layers");
  EXPECT_EQ(reliefs[1]["cache_bytes"], token * 128 * 2);
  EXPECT_EQ(reliefs[1]["decode_read_bytes"], token * 64 * 2);
  // A state of 32 * 32 per head, for any number of tokens.
  EXPECT_EQ(reliefs[2]["cache_bytes_per_token"], 0);
  EXPECT_EQ(reliefs[2]["cache_bytes"], 6 * 8 * 32 * 32 * 2 * 2);
  EXPECT_EQ(reliefs[3]["cache_bytes"], token * 4096 * 2);
  EXPECT_EQ(reliefs[3]["decode_read_bytes"], token * 1024 * 2);
}

TEST(Plan, OfLatentAttentionAndWindowsNamesThem) {
  const std::string text = plan_text({"--set", "model.attention=mla", "--set", "model.window=64",
                                      "--set", "model.window_pattern=LG", "--context", "1000"});
  EXPECT_THAT(text, HasSubstr("8 heads of 32 over a latent of 64 and 16 rotated, a window of 64 in "
                              "3 of 6 layers, context 256"));
  EXPECT_THAT(text, HasSubstr("self_attn.kv_a_proj_with_mqa.weight"));
  // The layers that see all hold 1000 tokens, the others two blocks of 64.
  EXPECT_THAT(text, HasSubstr("n_layer 3 * (kv_rank + rope_head_dim) 80 * bytes 4 * tokens 128"));
  EXPECT_THAT(text, HasSubstr("n_layer 3 * (kv_rank + rope_head_dim) 80 * bytes 4 * tokens 1000"));
  EXPECT_THAT(text, HasSubstr("attention's multiply-adds"));
  EXPECT_THAT(text, HasSubstr("\n        1   4,"));  // n_kv_head 1 instead, as a model of its own
}

TEST(Plan, FindsWhatFitsIntoMemory) {
  // n_kv_head 8: weights of 4 * 4738944 bytes, and a byte less than 1001 tokens of cache.
  const std::string memory = std::to_string(4 * 4738944 + 1001 * 12288 - 1);
  const auto fits = [&](const Arguments& more) {
    Arguments all = {"--set", "model.vocab_size=65", "--memory", memory};
    all.insert(all.end(), more.begin(), more.end());
    return plan_json("gqa", all)["fits"];
  };
  const auto rows = fits({});
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0],
            (nlohmann::json{{"n_kv_head", 8}, {"longest_context", 1000}, {"largest_batch", 3}}));
  EXPECT_EQ(rows[3]["n_kv_head"], 1);
  // Weights of n_kv_head 1 are 4 * 688128 bytes fewer; a token takes 1536.
  EXPECT_EQ(rows[3]["longest_context"], (1001 * 12288 - 1 + 4 * 688128) / 1536);
  EXPECT_EQ(fits({"--batch", "10"})[0]["longest_context"], 100);
  EXPECT_EQ(fits({"--context", "1000"})[0]["largest_batch"], 1);
  EXPECT_EQ(fits({"--context", "1001"})[0]["largest_batch"], 0);
  EXPECT_EQ(fits({"--set", "model.position=learned", "--set",
                  "model.block_size=128"})[0]["longest_context"],
            128);
  EXPECT_THAT(plan_text({"--memory", "1KiB"}), HasSubstr("none"));
}

TEST(Plan, RanksReliefsThatFit) {
  const auto advice =
      plan_json("gqa", {"--set", "model.vocab_size=65", "--set", "model.n_kv_head=8", "--context",
                        "100000", "--memory", "500MiB"})["advice"];
  const auto& reliefs = advice["reliefs"];
  EXPECT_EQ(reliefs[0]["relief"], "as it is");
  EXPECT_EQ(reliefs[0]["weights_bytes"], 4 * 4738944);
  EXPECT_EQ(reliefs[0]["cache_bytes"], 100000LL * 12288);
  EXPECT_EQ(reliefs[0]["fits"], false);
  EXPECT_EQ(reliefs[1]["fits"], true);
  EXPECT_EQ(reliefs[1]["loss_nats"], nullptr);  // nobody has measured anything
  EXPECT_EQ(advice["measured_in"], nlohmann::json::array());
  const std::string text = plan_text({"--context", "100000", "--memory", "1GiB"});
  EXPECT_THAT(text, HasSubstr("is too much."));
  EXPECT_THAT(text, HasSubstr("not measured"));
  EXPECT_THAT(text, HasSubstr("Warning: window 256, no sinks: without sinks"));
  EXPECT_THAT(text, HasSubstr("No study at hand"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--study", "runs"}),
              HasSubstr("--study is runs, but without --memory"));
  EXPECT_THAT(headroom_refusal({"plan", "gqa", "--set", "model.vocab_size=65", "--memory", "1GiB",
                                "--study", "/nowhere"}),
              HasSubstr("/nowhere/results.json: no such file"));
}

TEST(Plan, ReadsMemoryAsPeopleWriteIt) {
  for (const char* gibibyte : {"1GiB", "1 GiB", "1024MiB", "1073741824", "1073741824B", "1.0GiB"}) {
    EXPECT_THAT(plan_text({"--memory", gibibyte}), HasSubstr("cache in 1.0 GiB")) << gibibyte;
  }
  EXPECT_THAT(plan_text({"--memory", "8GB"}), HasSubstr("cache in 7.5 GiB"));
  EXPECT_THAT(plan_text({"--memory", "8000000kB"}), HasSubstr("cache in 7.5 GiB"));
  for (const char* wrong : {"lots", "8 gigs", "-1GiB", "0", "", "8GiBs", "1e99", "nan"}) {
    EXPECT_THAT(headroom_refusal({"plan", "gpt-124m", "--memory", wrong}),
                HasSubstr("--memory is " + std::string(wrong) + ", but must be a number of bytes"));
  }
  EXPECT_THAT(headroom_refusal({"plan", "gpt-124m", "--dtype", "f64"}),
              HasSubstr("--dtype is f64, but must be f32, bf16, f16, int8 or int4"));
}

TEST(Plan, KnowsEveryPresetByName) {
  const TemporaryFolder elsewhere;
  int presets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HEADROOM_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    ++presets;
    const RunOptions there = {.directory = elsewhere.path()};
    const auto by_file = headroom_json({"plan", entry.path().string()}, there);
    EXPECT_EQ(headroom_json({"plan", entry.path().stem().string()}, there), by_file);
    EXPECT_EQ(headroom_json({"plan", "configs/" + entry.path().filename().string()}, there),
              by_file);
  }
  EXPECT_GE(presets, 5);
}

TEST(Plan, AFileWinsOverAPresetOfItsName) {
  const TemporaryFolder folder;
  write_file(folder / "gqa", "model: {n_layer: 3, vocab_size: 65}");
  const auto plan = headroom_json({"plan", "gqa"}, {.directory = folder.path()});
  EXPECT_EQ(plan["cache_bytes_per_token"], 3 * plan["cache_bytes_per_token_per_layer"].get<int>());
}

TEST(Plan, TakesTheVocabularyFromWhereItIsKnown) {
  const TemporaryFolder folder;
  const RunOptions there = {.directory = folder.path()};
  const auto embedding = [&](const Arguments& more) {
    Arguments all = {"plan", "c.yaml"};
    all.insert(all.end(), more.begin(), more.end());
    const auto plan = headroom_json(all, there);
    return plan["params_by_tensor"]["model.embed_tokens.weight"].get<int64_t>() / 256;
  };
  write_file(folder / "c.yaml", "data: {corpus: t.txt}");
  EXPECT_EQ(embedding({}), 65);
  write_file(folder / "t.txt", "aabbccaabb");  // the last tenth is not for training
  EXPECT_EQ(embedding({}), 3);
  EXPECT_EQ(embedding({"--set", "data.tokenizer=byte"}), 256);
  EXPECT_EQ(embedding({"--set", "data.tokenizer=bpe", "--set", "data.vocab_size=300"}), 300);
  EXPECT_EQ(embedding({"--set", "model.vocab_size=7"}), 7);
}

TEST(Plan, ReadsARun) {
  const RandomRun run;  // "abc de.\n": eight characters; 32 wide
  const auto plan = headroom_json({"plan", run.path().string()});
  EXPECT_EQ(plan["params_by_tensor"]["model.embed_tokens.weight"], 8 * 32);
  EXPECT_EQ(headroom_json({"plan", (run.path() / "last.safetensors").string()}), plan);
  EXPECT_THAT(headroom_refusal({"plan", run.path().parent_path().string()}),
              HasSubstr("is a folder without a config.yaml"));
}

}  // namespace
}  // namespace headroom::testing
