// The exhibits on quality: what they make of figures that are known.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "contains.h"
#include "experiments/gnuplot.h"
#include "experiments/heat_map.h"
#include "experiments/kv_bits.h"
#include "experiments/sweep_exhibits.h"
#include "experiments_example_sweep.h"
#include "infer_model.h"
#include "reproduce_study.h"

namespace headroom::experiments {
namespace {

using configs::KVType;
using headroom::testing::contains;
using headroom::testing::row_of;

TEST(CacheQuality, GivesMultiQueryLossAsPercentOfPerplexity) {
  const Sweep sweep = example_sweep();
  const Exhibit exhibit = show_cache_quality(sweep, summarize(sweep));
  const ExhibitRow& row = row_of(exhibit, "MQA's perplexity above MHA's");
  EXPECT_EQ(row.published, 1);
  EXPECT_EQ(row.published_to, 2);
  // 1.50110 - 1.48830 nats are a factor of 1.01288 in perplexity
  ASSERT_TRUE(row.ours);
  EXPECT_NEAR(*row.ours, 1.288, 0.001);
  EXPECT_TRUE(contains(row.note, "95 %"));
  EXPECT_EQ(exhibit.table.size(), 5u);
  EXPECT_FALSE(exhibit.chart.empty());
  EXPECT_EQ(exhibit.legend.size(), 4u);
}

TEST(CacheQuality, OneSeedHasNoIntervalAndAnUnfinishedSweepNoFigure) {
  const Sweep one = one_seed_sweep();
  EXPECT_TRUE(
      contains(row_of(show_cache_quality(one, summarize(one)), "MQA's perplexity above MHA's").note,
               "one seed, no interval"));
  const Sweep half = unfinished_sweep();
  const Exhibit exhibit = show_cache_quality(half, summarize(half));
  EXPECT_FALSE(row_of(exhibit, "MQA's perplexity above MHA's").ours);
}

TEST(KvHeadTable, GivesParametersBytesAndLossOfEveryRow) {
  const Sweep sweep = example_sweep();
  const Exhibit exhibit = show_kv_head_table(sweep, summarize(sweep));
  EXPECT_EQ(exhibit.rows.size(), 20u);
  EXPECT_FALSE(exhibit.chart.empty());
  // 2 * (8 + n_kv_head) * 32 * 256 parameters; 2 * n_kv_head * 32 * 4 bytes
  const std::map<int64_t, std::pair<double, double>> published = {
      {8, {262144, 2048}}, {4, {196608, 1024}}, {2, {163840, 512}}, {1, {147456, 256}}};
  for (const auto& [heads, layer] : published) {
    const std::string row = fmt::format("n_kv_head {}, ", heads);
    EXPECT_EQ(row_of(exhibit, row + "attention of a layer").published, layer.first);
    EXPECT_EQ(row_of(exhibit, row + "cache per token and layer").published, layer.second);
    EXPECT_EQ(row_of(exhibit, row + "cache per token and layer").ours, layer.second);
  }
  Sweep narrow = sweep;
  narrow.config_yaml = "model: {n_layer: 6, n_head: 8, n_embd: 128}";
  EXPECT_FALSE(
      row_of(show_kv_head_table(narrow, summarize(narrow)), "n_kv_head 8, attention of a layer")
          .published);
  EXPECT_EQ(row_of(exhibit, "n_kv_head 1, parameters").ours, 4046848);
  EXPECT_EQ(row_of(exhibit, "n_kv_head 1, cache per token").ours, 1536);
  const ExhibitRow& loss = row_of(exhibit, "n_kv_head 2, best validation loss");
  EXPECT_EQ(loss.published, 1.50);
  EXPECT_NEAR(loss.ours.value_or(0), 1.4901, 1e-4);  // of 1.4899, 1.4893 and 1.4911
}

TEST(HeatMap, SaysEachNumberAndDrawsShapes) {
  const std::string svg = draw(heat_map({{0.01, 0.57}, {0.25, 0.02}}, "mass"), "map");
  for (const char* number : {"1.0", "57", "25", "2.0", "mass (%)"}) {
    EXPECT_TRUE(contains(svg, number)) << number;
  }
  EXPECT_FALSE(contains(svg, "<image"));
  EXPECT_TRUE(contains(draw(heat_map({{0.011, 0.057}}, "mass"), "map"), "1.1"));
  EXPECT_EQ(heat_map({}, "mass"), "");
}

TEST(KvBits, MeanAndIntervalOverPassages) {
  // sd of 1, 2, 3, 4 is sqrt(5 / 3); 1.96 * sqrt(5 / 3 / 4)
  const MeanOverPassages four = mean_over_passages({1, 2, 3, 4});
  EXPECT_NEAR(four.mean, 2.5, 1e-12);
  EXPECT_NEAR(four.half_width, 1.26517, 1e-5);
  EXPECT_EQ(mean_over_passages({7}).half_width, 0);
}

TEST(KvBits, AnswersWhatTheNumbersSupport) {
  const configs::KVTypes int4{KVType::int4, KVType::int4};
  const BitsLoss many{8, int4, {0.010, 0.012, 0.011, 0.013}};
  const auto answer = [&](std::vector<double> fewest) {
    return bits_answer({many, {1, int4, std::move(fewest)}});
  };
  EXPECT_TRUE(contains(answer({0.030, 0.033, 0.031, 0.032}), "quantises worse"));
  EXPECT_TRUE(contains(answer({0.001, 0.002, 0.002, 0.001}), "quantises better"));
  EXPECT_TRUE(contains(answer({0.002, 0.022, 0.001, 0.023}), "resolve no difference"));
  EXPECT_TRUE(contains(bits_answer({many}), "nothing to compare"));
}

TEST(KvBits, MeasuresEveryPairOfTypesAgainstFloat32) {
  const auto model = headroom::testing::small_model(headroom::testing::small_config());
  const Passages passages = cut_passages(headroom::testing::tokens(3 * 41), 3, 40);
  const auto losses = bits_losses(*model, passages, [](int64_t, int64_t) {});
  ASSERT_EQ(losses.size(), 9u);
  double largest[2] = {0, 0};
  for (const BitsLoss& each : losses) {
    EXPECT_EQ(each.n_kv_head, 2);
    ASSERT_EQ(each.by_passage.size(), 3u);
    const bool four = each.types == configs::KVTypes{KVType::int4, KVType::int4};
    const bool sixteen = each.types == configs::KVTypes{KVType::bf16, KVType::bf16};
    for (const double nats : each.by_passage) {
      if (four || sixteen) {
        largest[four ? 1 : 0] = std::max(largest[four ? 1 : 0], std::abs(nats));
      }
    }
  }
  EXPECT_GT(largest[0], 0);
  EXPECT_GT(largest[1], 3 * largest[0]);
}

}  // namespace
}  // namespace headroom::experiments
