// headroom bench: what it prints adds up. Speeds themselves are nobody's expectation here.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run_program.h"

namespace headroom::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> kTiny = {
    "--set", "model.n_layer=2",     "--set", "model.n_head=4",    "--set", "model.n_kv_head=2",
    "--set", "model.n_embd=32",     "--set", "model.n_ff=64",     "--set", "model.vocab_size=50",
    "--set", "model.block_size=16", "--set", "train.batch_size=3"};

json bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  arguments.insert(arguments.end(), kTiny.begin(), kTiny.end());
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
