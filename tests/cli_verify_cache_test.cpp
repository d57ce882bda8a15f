// headroom verify-cache as a user sees it.
#include "cli_random_run.h"
#include "kernels/backend.h"
#include "tensor/safetensors.h"

namespace headroom::testing {
namespace {

using nlohmann::json;

TEST(VerifyCache, ProvesARunAndAConfig) {
  const RandomRun run;
  const RunResult result = run_program({"verify-cache", run.path().string(), "--json"});
  ASSERT_EQ(result.status, 0) << result.err << result.out;
  const json out = json::parse(result.out);
  EXPECT_TRUE(out.at("ok"));
  // Each in f32 and f64. static, its five ways of storing, a file: 4 + 1 chunkings; two windows: 5
  // + 1
  EXPECT_EQ(out.at("rows").size(), 7 * 10U + 2 * 12U);
  for (const json& row : out.at("rows")) {
    EXPECT_TRUE(row.at("ok"));
    EXPECT_LE(row.at("max_abs_diff").get<double>(),
              row.at("bound").get<double>() * row.at("max_abs_logit").get<double>());
  }
  const RunResult config =
      run_program({"verify-cache", (run.path() / "config.yaml").string(), "--cache",
                   "static,window=20", "--set", "model.position=learned"});
  EXPECT_EQ(config.status, 0) << config.err;
  EXPECT_NE(config.out.find("all 12 comparisons agree"), std::string::npos) << config.out;
  EXPECT_NE(config.out.find("published setting"), std::string::npos);
}

/// Attention scores in the thousands are beyond what float32 tells apart: a chunk's order of
/// additions changes the logits. The proof must say so, and not pass what the user has.
TEST(VerifyCache, DisagreementIsStatusOne) {
  const RandomRun run(configs::TokenizerKind::byte);
  const std::filesystem::path checkpoint = run.path() / train::kLastFile;
  std::vector<std::pair<std::string, Tensor>> weights;
  const SafetensorsFile file(checkpoint);
  for (const auto& [name, info] : file.tensors()) {
    const Tensor value = file.read(name);
    if (name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos) {
      kernels::backend(kCpu).scale(value, 16, {value});
    }
    weights.emplace_back(name, value);
  }
  write_safetensors(checkpoint, weights, file.metadata());
  const RunResult result = run_program({"verify-cache", run.path().string(), "--json"});
  EXPECT_EQ(result.status, 1) << result.out;
  const json out = json::parse(result.out);
  EXPECT_FALSE(out.at("ok"));
  for (const json& row : out.at("rows")) {
    const bool within = row.at("max_abs_diff").get<double>() <=
                        row.at("bound").get<double>() * row.at("max_abs_logit").get<double>();
    EXPECT_TRUE(within || !row.at("ok").get<bool>());
  }
  const RunResult text = run_program({"verify-cache", run.path().string()});
  EXPECT_EQ(text.status, 1);
  EXPECT_NE(text.out.find("comparisons DISAGREE"), std::string::npos) << text.out;
}

TEST(VerifyCache, RefusesWhatCannotBeCompared) {
  const RandomRun run;
  for (const std::string cache : {"none", "static,places=host"}) {
    const RunResult result = run_program({"verify-cache", run.path().string(), "--cache", cache});
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find(cache == "none" ? "none" : "places=host"), std::string::npos);
  }
}

/// What a window needs is counted before anything is allocated.
TEST(VerifyCache, RefusesAWindowThatNoMemoryHolds) {
  const RandomRun run;
  const auto refusal = [&](const std::string& cache) {
    const RunResult result = run_program({"verify-cache", run.path().string(), "--cache", cache});
    EXPECT_EQ(result.status, 2) << result.err;
    return result.err;
  };
  // Blocks of 64 that 1e9 + 15 positions can touch, and 32 tokens more: 1e9 + 160. A token's cache
  // is 2 * 2 layers * 2 heads * 8 * 8 bytes, for each of three sequences.
  const std::string window = refusal("static,window=1000000000");
  for (const char* part : {"sequences of 1000000160 tokens", "cache 1.4 TiB", "are available",
                           "lower window in --cache (now 1000000000)"}) {
    EXPECT_NE(window.find(part), std::string::npos) << part << '\n' << window;
  }
  EXPECT_NE(refusal("static,window=16,sinks=1000000000").find("lower sinks in --cache"),
            std::string::npos);
  const RunResult learned =
      run_program({"verify-cache", (run.path() / "config.yaml").string(), "--cache",
                   "static,window=1000000000", "--set", "model.position=learned"});
  EXPECT_EQ(learned.status, 0) << learned.err;  // as long as the position table, and no longer
}

}  // namespace
}  // namespace headroom::testing
