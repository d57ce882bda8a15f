// headroom bench: what it prints adds up. Speeds themselves are nobody's expectation here.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "run_program.h"

namespace headroom::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> kTiny = {
    "--set", "model.n_layer=2",      "--set", "model.n_head=4",
    "--set", "model.n_kv_head=2",    "--set", "model.n_embd=32",
    "--set", "model.n_ff=64",        "--set", "model.vocab_size=50",
    "--set", "model.block_size=16",  "--set", "train.batch_size=3",
    "--set", "sweep.n_kv_head=[4,2]"};

json bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin() + 2, kTiny.begin(), kTiny.end());  // a test's own --set wins
  arguments.insert(arguments.begin(), "bench");
  arguments.emplace_back("--json");
  const RunResult result = run_program(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return json::parse(result.out);
}

TEST(Bench, TrainCountsTheDesignsFlopAndDividesThem) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const json out = bench({"train", "gqa", "--steps", "5", "--precision", precision, "--set",
                            "train.grad_accumulation=2"});
    EXPECT_EQ(out.at("precision"), precision);
    // 2 layers of q and o 32 x 32, k and v 16 x 32, up and down 64 x 32; a head of 50 x 32; 48
    // tokens, whatever the accumulation. Attention: 6 * layers 2 * heads 4 * 8 * (16 + 1).
    const double matrices = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 2 * 64 * 32) + 50 * 32;
    const double flop = 48 * (6 * matrices + 6.0 * 2 * 4 * 8 * 17);
    EXPECT_NEAR(out.at("gflop_per_step").get<double>(), flop / 1e9, flop / 1e15);
    const double seconds = out.at("step_ms").get<double>() / 1e3;
    EXPECT_NEAR(out.at("tokens_per_s").get<double>() * seconds, 48, 1e-6);
    EXPECT_NEAR(out.at("gflops").get<double>() * seconds, flop / 1e9, flop / 1e15);
    EXPECT_NEAR(out.at("fraction_of_peak").get<double>() * out.at("peak_gflops").get<double>(),
                out.at("gflops").get<double>(), 1e-6);
    EXPECT_GT(out.at("muon_extra_ms").get<double>() + out.at("optimizer_ms").get<double>(), 0);
    EXPECT_EQ(out.at("scaling").back().at("threads"), out.at("threads"));
    EXPECT_EQ(out.at("scaling").front().at("threads"), 1);
  }
}

/// Both name the same bytes: weights, gradients, optimizer and activations.
TEST(Bench, TrainsPlannedBytesArePlans) {
  std::vector<std::string> arguments = {
      "plan", "gqa", "--json", "--precision", "fp32", "--set", "train.optimizer=adamw"};
  arguments.insert(arguments.end(), kTiny.begin(), kTiny.end());
  const RunResult result = run_program(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  const json plan = json::parse(result.out);
  const int64_t planned = 2 * plan.at("weights_bytes").get<int64_t>() +
                          plan.at("optimizer_bytes").get<int64_t>() +
                          plan.at("activation_bytes").get<int64_t>();
  const json out = bench({"train", "gqa", "--steps", "5", "--precision", "fp32"});
  EXPECT_EQ(out.at("planned_bytes"), planned);
  EXPECT_GT(out.at("peak_rss_bytes").get<int64_t>(), planned);
}

// The tiny model's matrices: two layers of q and o 32 x 32, k and v 16 x 32, up and down 64 x 32,
// and the tied head.
constexpr double kLayerWeights = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 2 * 64 * 32),
                 kHeadWeights = 50 * 32;

TEST(Bench, RooflineCountsBytesAndFlop) {
  const json out = bench({"roofline", "gqa", "--tokens", "40", "--context", "9", "--steps", "5",
                          "--sequences", "2", "--precision", "fp32"});
  const json& prefill = out.at("prefill");
  EXPECT_EQ(prefill.at("tokens"), 40);
  // Attention: 2 * layers 2 * heads 4 * 8 * (40 + 1) * 40.
  const double flop = 2 * (kLayerWeights * 40 + kHeadWeights) + 2.0 * 2 * 4 * 8 * 41 * 40;
  EXPECT_NEAR(prefill.at("gflops").get<double>() / prefill.at("tokens_per_s").get<double>(),
              flop / 40 / 1e9, flop / 1e15);
  // Weights in f32, and keys and values of 2 heads of 8 in 2 layers.
  EXPECT_NEAR(prefill.at("flop_per_byte").get<double>(),
              flop / (4 * (kLayerWeights + kHeadWeights) + 2 * 2 * 2 * 8 * 40 * 4), 1e-9);
  const json& decode = out.at("decode");
  ASSERT_EQ(decode.size(), 3U);
  // int8 has a scale of 4 bytes for each of 192 rows of a layer and 50 of the head.
  const std::map<std::string, double> weights = {
      {"f32", 4 * (kLayerWeights + kHeadWeights)},
      {"bf16", 2 * (kLayerWeights + kHeadWeights)},
      {"int8", kLayerWeights + kHeadWeights + 4 * (2 * 192 + 50)}};
  for (const json& each : decode) {
    const double element = each.at("activations") == "bf16" ? 2 : 4;
    const double bytes =
        weights.at(each.at("weights")) + 2 * 2 * 2 * 8 * 10 * element;  // 9 and its own
    EXPECT_EQ(each.at("bytes_per_token").get<double>(), bytes) << each;
    EXPECT_NEAR(each.at("flop_per_byte").get<double>(),
                (2 * (kLayerWeights + kHeadWeights) + 4.0 * 2 * 4 * 8 * 10) / bytes, 1e-9);
    EXPECT_GT(each.at("fraction_of_bandwidth").get<double>(), 0);
  }
  EXPECT_EQ(out.at("batches").size(), 2U * 2);  // 1 and 2 sequences, 4 and 2 KV heads
}

TEST(Bench, LatencyHasARowPerContextAndTheirSlope) {
  const json out = bench({"latency", "gqa", "--contexts", "16,48"});
  const json& rows = out.at("rows");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("context"), 16);
  EXPECT_EQ(rows[1].at("context"), 48);
  EXPECT_GT(rows[0].at("fraction_of_bandwidth").get<double>(), 0);
  for (const std::string kind : {"naive", "cached"}) {
    const double rise =
        rows[1].at(kind + "_ms").get<double>() - rows[0].at(kind + "_ms").get<double>();
    EXPECT_NEAR(out.at(kind + "_slope_us_per_token").get<double>(), rise / 32 * 1e3, 1e-9);
  }
}

TEST(Bench, MeasuresLatentsAndWindows) {
  const std::vector<std::string> latent = {
      "--set", "model.attention=mla", "--set", "model.n_kv_head=4",
      "--set", "model.window=8",      "--set", "model.window_pattern=LG"};
  std::vector<std::string> latency = {"latency", "gqa", "--contexts", "16,48"};
  latency.insert(latency.end(), latent.begin(), latent.end());
  EXPECT_EQ(bench(latency).at("rows").size(), 2U);
  std::vector<std::string> roofline = {"roofline",    "gqa", "--tokens",    "40",
                                       "--context",   "9",   "--steps",     "5",
                                       "--sequences", "2",   "--precision", "fp32"};
  roofline.insert(roofline.end(), latent.begin(), latent.end());
  EXPECT_EQ(bench(roofline).at("batches").size(), 2U);  // one latent serves all heads
}

/// Its default is 8, 4, 2, 1.
TEST(Bench, BatchesAreOfTheKvHeadsThatAModelCanHave) {
  const json out = bench({"roofline", "gqa", "--tokens", "4", "--context", "9", "--steps", "5",
                          "--sequences", "1", "--precision", "fp32", "--set", "model.n_head=2",
                          "--set", "sweep.n_kv_head=[8,4,2,1]"});
  std::vector<int64_t> kv_heads;
  for (const json& each : out.at("batches")) kv_heads.push_back(each.at("n_kv_head"));
  EXPECT_EQ(kv_heads, (std::vector<int64_t>{2, 1}));
}

TEST(Bench, RefusesContextsThatAreNone) {
  for (const std::string contexts : {"", "12,", "0", "5;6", "a"}) {
    const RunResult result = run_program({"bench", "latency", "gqa", "--contexts", contexts});
    EXPECT_EQ(result.status, 2) << contexts;
    EXPECT_NE(result.err.find("--contexts"), std::string::npos) << result.err;
  }
  std::vector<std::string> learned = {
      "bench", "latency", "gqa", "--contexts", "15,16", "--set", "model.position=learned"};
  learned.insert(learned.end(), kTiny.begin(), kTiny.end());
  const RunResult result = run_program(learned);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("17 tokens pass model.block_size 16"), std::string::npos) << result.err;
}

TEST(Bench, NamesItsKinds) {
  const RunResult result = run_program({"bench"});
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("train"), std::string::npos) << result.err;
  const RunResult typo = run_program({"bench", "trian", "gqa"});
  EXPECT_EQ(typo.status, 2);
  EXPECT_NE(typo.err.find("train"), std::string::npos) << typo.err;
}

}  // namespace
}  // namespace headroom::testing
