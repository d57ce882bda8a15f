// What makes a cache fit, and what a study measured of it.
#include "experiments/advice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "experiments/kv_bits.h"
#include "experiments/results_file.h"
#include "experiments_example_sweep.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

/// 2 layers, 4 heads of 8 over 4 KV heads: 2 * 2 * 4 * 8 * 4 = 512 bytes of cache per token in f32.
configs::ModelConfig small() {
  configs::ModelConfig model;
  model.n_layer = 2;
  model.n_head = model.n_kv_head = 4;
  model.n_embd = 32;
  model.given_n_ff = 64;
  model.block_size = 64;
  return model;
}

constexpr int64_t kToken = 512, kContext = 1000;

/// Bytes of its float32 weights: embedding 50 * 32, per layer two norms of 32, four matrices of 32
/// x 32 and two of 64 x 32, and the last norm.
constexpr int64_t kWeights = 4 * (50 * 32 + 2 * (2 * 32 + 4 * 32 * 32 + 2 * 64 * 32) + 32);

Need need(int64_t memory) {
  return {.vocab_size = 50, .context = kContext, .batch = 1, .types = {}, .memory = memory};
}

const RankedRelief& named(const std::vector<RankedRelief>& all, const std::string& name) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const RankedRelief& each) { return each.name == name; });
  EXPECT_NE(at, all.end()) << name;
  return at == all.end() ? all.front() : *at;
}

TEST(Advice, BytesAreThoseOfTheFormula) {
  const auto all = rank_reliefs(small(), need(1), {});
  EXPECT_EQ(all.front().name, "as it is");
  EXPECT_EQ(all.front().weights_bytes, kWeights);
  EXPECT_EQ(all.front().cache_bytes, kContext * kToken);
  EXPECT_EQ(named(all, "n_kv_head 1").cache_bytes, kContext * kToken / 4);
  // k_proj and v_proj of 8 instead of 32 rows
  EXPECT_EQ(named(all, "n_kv_head 1").weights_bytes, kWeights - 4 * 2 * 2 * 24 * 32);
  EXPECT_EQ(named(all, "bf16 cache").cache_bytes, kContext * kToken / 2);
  // each of 2 * 2 * 4 vectors of 8 numbers: 8 bytes and a scale of 2
  EXPECT_EQ(named(all, "int8 cache").cache_bytes, kContext * 2 * 2 * 4 * 10);
  EXPECT_EQ(named(all, "n_kv_head 2, int4 cache").cache_bytes, kContext * 2 * 2 * 2 * 6);
  EXPECT_EQ(named(all, "window 64, 4 sinks").cache_bytes, 68 * kToken);
  EXPECT_EQ(named(all, "cache in a file (place=file)").cache_bytes, 0);
  // kv_rank 16 and 4 rotated numbers
  EXPECT_EQ(named(all, "latent attention (kv_rank 16)").cache_bytes, kContext * 2 * 20 * 4);
  for (const RankedRelief& each : all) {
    EXPECT_FALSE(each.fits) << each.name;
  }
}

TEST(Advice, RanksWhatFitsByMeasuredLossThenByHowLittleItTakesAway) {
  MeasuredLosses measured;
  measured.heads = {{4, 0.0}, {2, 0.01}, {1, 0.05}};
  measured.types[bits_figure(4, {configs::KVType::int8, configs::KVType::int8})] = 0.001;
  measured.types[bits_figure(2, {configs::KVType::int4, configs::KVType::int4})] = 0.02;
  measured.sources = {"a study"};
  const auto all = rank_reliefs(small(), need(kWeights + kContext * kToken / 2), measured);
  std::vector<std::string> order;
  for (const RankedRelief& each : all) {
    order.push_back(each.name);
  }
  EXPECT_FALSE(all[0].fits);
  EXPECT_EQ(order[1], "int8 cache");
  EXPECT_EQ(order[2], "n_kv_head 2");
  EXPECT_EQ(order[3], "n_kv_head 2, int4 cache");
  EXPECT_NEAR(all[3].loss.value_or(0), 0.03, 1e-12);  // both were measured apart
  EXPECT_EQ(order[4], "n_kv_head 1");
  EXPECT_EQ(order[5], "bf16 cache");  // not measured, and the largest that fits
  EXPECT_FALSE(all[5].loss);
  const auto fitting =
      std::find_if(all.begin() + 1, all.end(), [](const RankedRelief& each) { return !each.fits; });
  EXPECT_TRUE(std::none_of(fitting, all.end(), [](const RankedRelief& each) { return each.fits; }));
  EXPECT_EQ((fitting - 1)->name, "window 64, no sinks");  // warned about, so last
  EXPECT_NE((fitting - 1)->warning.find("8.25 against 3.58"), std::string::npos);
  EXPECT_EQ((fitting - 2)->name, "cache in a file (place=file)");
  EXPECT_TRUE((fitting - 2)->slow);
}

TEST(Advice, LearnedPositionsOfferNoWindowAndNoLatent) {
  configs::ModelConfig model = small();
  model.position = configs::Position::learned;
  for (const RankedRelief& each : rank_reliefs(model, need(1), {})) {
    EXPECT_EQ(each.name.find("window"), std::string::npos) << each.name;
    EXPECT_EQ(each.name.find("latent"), std::string::npos) << each.name;
  }
}

std::filesystem::path fresh_folder(const std::string& name) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(MeasuredLosses, AreReadFromASweepAndFromReproduce) {
  const auto folder = fresh_folder("headroom_measured");
  EXPECT_THROW(read_measured(folder), InputError);
  write_file(folder / "results.json", R"({"rows": [
    {"exhibit": "kv-bits", "figure": "n_kv_head 2, int8 cache", "published": null, "ours": 0.004},
    {"exhibit": "window-sinks", "figure": "full attention", "published": 3.58, "ours": 1.5},
    {"exhibit": "window-sinks", "figure": "window 64, 4 sinks", "published": 3.76, "ours": 1.75},
    {"exhibit": "window-sinks", "figure": "window 64, 0 sinks", "published": 8.25, "ours": null},
    {"exhibit": "latency", "figure": "naive", "published": 1, "ours": 2}]})");
  std::filesystem::create_directories(folder / "sweep");
  Sweep sweep = example_sweep();
  for (Row& row : sweep.rows) {
    row.name = "kv" + std::to_string(row.n_kv_head);
  }
  write_results(folder / "sweep", sweep, summarize(sweep));
  const MeasuredLosses measured = read_measured(folder);
  EXPECT_EQ(measured.types.at(bits_figure(2, {configs::KVType::int8, configs::KVType::int8})),
            0.004);
  ASSERT_EQ(measured.sinks.size(), 1u);
  EXPECT_NEAR(measured.sinks.at(4), 0.25, 1e-12);
  EXPECT_EQ(measured.heads.at(8), 0);
  // means of 1.5012, 1.5030, 1.4991 and of 1.4881, 1.4902, 1.4866
  EXPECT_NEAR(measured.heads.at(1), 1.5011 - 1.4883, 1e-9);
  EXPECT_EQ(measured.sources.size(), 2u);
  EXPECT_EQ(read_measured(folder / "sweep").heads, measured.heads);
  write_file(folder / "results.json", "{}");
  EXPECT_THROW(read_measured(folder), InputError);
}

}  // namespace
}  // namespace headroom::experiments
