// The exhibits on speed, memory and arithmetic: published figures exactly where they are
// arithmetic, and whole exhibits of a model so small that they take no time where they are
// measured.
#include "experiments/exhibits.h"

#include <gtest/gtest.h>

#include "configs/load.h"
#include "configs/size.h"
#include "experiments/counted_work.h"
#include "infer_model.h"
#include "reproduce_study.h"

namespace headroom::testing {
namespace {

using experiments::Exhibit;
using experiments::ExhibitRow;

/// The real presets.
configs::Config preset_file(const std::string& name) {
  return configs::load_config(std::filesystem::path(HEADROOM_SOURCE_DIR) / "configs" /
                              (name + ".yaml"));
}

experiments::Study real_study() {
  experiments::Study study = tiny_study();
  study.preset = preset_file;
  return study;
}

TEST(ExhibitKinds, AreTheStudysInItsOrder) {
  std::vector<std::string> ids;
  for (const auto& kind : experiments::exhibit_kinds()) {
    ids.emplace_back(kind.id);
    EXPECT_GT(kind.seconds, 0);
    EXPECT_GE(kind.seconds, kind.quick_seconds);
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"latency", "end-to-end", "logits-equal", "memory-bill",
                                           "fused-view", "prefill-decode", "kv-head-table",
                                           "cache-quality", "low-rank", "sink-mass", "learned-sink",
                                           "window-sinks", "kv-bits", "attention-fused", "flop-100",
                                           "worked-step", "presets", "draft", "uptrain"}));
}

/// To as many digits as were published.
void expect_published(const Exhibit& exhibit, const std::string& figure, double published,
                      double within) {
  const ExhibitRow& row = row_of(exhibit, figure);
  EXPECT_EQ(row.published, published) << figure;
  EXPECT_NEAR(row.ours.value_or(0), published, within) << figure;
}

TEST(Presets, GiveThePublishedBytes) {
  const Exhibit e = experiments::presets_exhibit(real_study());
  expect_complete(e);
  expect_published(e, "GPT-3 175B, a token in a layer, fp16", 49152, 0);
  expect_published(e, "GPT-3 175B, a token, fp16", 4.72, 0.005);
  expect_published(e, "GPT-3 175B, 2048 tokens, fp16", 9.66, 0.005);
  expect_published(e, "Llama 2 70B, multi-head over its 8 KV heads", 8, 0);
  expect_published(e, "32 heads, multi-head over multi-query", 32, 0);
  expect_published(e, "GPT-2, 512 tokens, fp16", 18.9, 0.05);
  expect_published(e, "gpt-124m, parameters", 123.6, 0.05);
  expect_published(e, "gpt-124m, a token, fp32", 72, 0);
  expect_published(e, "32 layers of 32 heads of 128, 100,000 tokens, fp32", 105, 0.5);
  const ExhibitRow& half = row_of(e, "32 layers of 32 heads of 128, 100,000 tokens, fp16");
  EXPECT_EQ(half.published, 105);  // the often quoted figure, which is fp32's
  EXPECT_NEAR(half.ours.value_or(0), 52.4, 0.05);
}

TEST(WorkedStep, CountsTheStepByHand) {
  const Exhibit e = experiments::worked_step_exhibit(real_study());
  expect_complete(e);
  expect_published(e, "Q, 4 x 64", 256, 0);
  expect_published(e, "K, 3 x 4 x 64", 768, 0);
  expect_published(e, "scores of a head, 1 x 3", 3, 0);
  EXPECT_EQ(row_of(e, "cache after the step, f32").ours, 2 * 3 * 4 * 64 * 4);
  // Four projections of 256 x 256, and twice 4 heads x 3 keys x 64 multiply-adds.
  EXPECT_EQ(row_of(e, "FLOP of the step's attention").ours, 2 * (4 * 65536 + 2 * 4 * 3 * 64));
  EXPECT_LT(row_of(e, "largest difference from the attention kernel").ours.value_or(1), 1e-5);
}

TEST(Flop100, GivesThePublishedCountsOfGpt2) {
  const configs::ModelConfig gpt2 = preset_file("gpt2").model;
  experiments::CountedWork counted;
  counted.naive.work.rows = 5050;
  counted.cached.work.rows = 100;
  const Exhibit e = experiments::show_work(gpt2, 100, counted);
  expect_complete(e);
  for (const std::string who : {"", "counted: "}) {
    expect_published(e, who + "one projection without a cache", 3.57e10, 0.005e10);
    expect_published(e, who + "one projection with a cache", 7.08e8, 0.005e8);
  }
  expect_published(e, "ratio, (L + 1) / 2", 50.5, 0);
  expect_published(e, "cache of 100 tokens, fp16", 3.69, 0.005);
  expect_published(e, "weights, fp16", 249, 0.5);
  expect_published(e, "weights, fp32", 498, 0.5);
}

TEST(Flop100, CountsOfARunAreTheFormulas) {
  configs::ModelConfig config = small_config(2, 32);
  const auto model = small_model(config);
  int64_t told = 0;
  const experiments::CountedWork counted = experiments::count_work(*model, 10, [&] { ++told; });
  EXPECT_EQ(told, 20);
  EXPECT_EQ(counted.naive.work.rows, 55);
  EXPECT_EQ(counted.cached.work.rows, 10);
  EXPECT_EQ(counted.naive.logit_rows_used, 10);
  EXPECT_EQ(counted.cached.logit_rows_used, 10);
  int64_t naive = 0, cached = 0;
  for (int64_t tokens = 1; tokens <= 10; ++tokens) {
    naive += configs::prefill_flop(config, kVocab, tokens);
    cached += configs::decode_flop(config, kVocab, tokens);
  }
  EXPECT_EQ(counted.naive.work.flop, naive);
  EXPECT_EQ(counted.cached.work.flop, cached);
  // Keys and values of 1, 2, ... 10 tokens: 2 layers x 2 x 2 heads of 8 floats.
  EXPECT_EQ(counted.cached.work.cache_bytes_read, 55 * 2 * 2 * 2 * 8 * 4);
  EXPECT_EQ(counted.naive.work.cache_bytes_read, 0);
}

TEST(Latency, HasPublishedStepsRatiosAndSlopes) {
  const Exhibit e = experiments::latency_exhibit(tiny_study());
  expect_complete(e);
  const double naive[] = {9.84, 10.44, 21.71, 48.61}, cached[] = {9.63, 9.81, 9.55, 9.62};
  const int64_t contexts[] = {512, 1024, 2048, 4096};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(row_of(e, "naive step at context " + std::to_string(contexts[i])).published,
              naive[i]);
    EXPECT_EQ(row_of(e, "cached step at context " + std::to_string(contexts[i])).published,
              cached[i]);
  }
  // Least squares by hand: sum of dx dy over sum of dx^2, dx = -1408, -896, 128, 2176.
  EXPECT_NEAR(row_of(e, "naive slope").published.value_or(0), 11.32, 0.005);
  EXPECT_NEAR(row_of(e, "cached slope").published.value_or(0), -0.0256, 0.00005);
  EXPECT_GT(row_of(e, "naive slope").ours.value_or(0), row_of(e, "cached slope").ours.value_or(1));
}

TEST(EndToEnd, AQuickStudyTimesTwelveStepsAndSaysSo) {
  const Exhibit e = experiments::end_to_end_exhibit(tiny_study());
  expect_complete(e);
  expect_published(e, "without a cache", 11.5, 1e9);
  expect_published(e, "with a cache", 2.9, 1e9);
  for (const char* figure : {"without a cache", "speed-up"}) {
    EXPECT_EQ(row_of(e, figure).note, "12 steps timed, total estimated");
  }
  EXPECT_TRUE(holds(e.setting, "12 steps timed, total estimated"));
  EXPECT_GT(row_of(e, "speed-up").ours.value_or(0), 1);
}

TEST(LogitsEqual, StaysWithinItsBounds) {
  const Exhibit e = experiments::logits_equal_exhibit(real_study());
  expect_complete(e);
  expect_published(e, "largest |full - cached|, rope, f32", 3.65e-7, 1e-5);
  expect_published(e, "largest |full - cached|, learned, f32", 3.32e-7, 1e-5);
  for (const char* positions : {"rope", "learned"}) {
    const std::string figure = std::string("largest |full - cached|, ") + positions;
    EXPECT_EQ(row_of(e, figure + ", f32").note, "within the bound");
    EXPECT_LT(row_of(e, figure + ", f64").ours.value_or(1), 1e-12);
  }
}

TEST(MemoryBill, AllocatesTheFormulasBytes) {
  const Exhibit e = experiments::memory_bill_exhibit(tiny_study());
  expect_complete(e);
  for (const auto& [context, published] : {std::pair{1024, 72}, {2048, 144}, {4096, 288}}) {
    const ExhibitRow& row = row_of(e, "cache of " + std::to_string(context) + " tokens");
    EXPECT_EQ(row.published, published);
    // 2 x 2 layers x 24 wide x 4 bytes a token, in MiB
    EXPECT_EQ(row.ours, context * 384.0 / 1048576);
    EXPECT_EQ(row.note, "the formula's bytes exactly");
  }
  EXPECT_EQ(row_of(e, "growth per token").published, 72);
  EXPECT_EQ(row_of(e, "growth per token").ours, 0.375);
}

TEST(FusedView, HoldsTheQueriesToo) {
  const Exhibit e = experiments::fused_view_exhibit(tiny_study());
  expect_complete(e);
  EXPECT_EQ(row_of(e, "views held, over the formula").published, 2);
  EXPECT_EQ(row_of(e, "views held, over the formula").ours, 1.5);
  EXPECT_EQ(row_of(e, "copies held, over the formula").ours, 1);
  EXPECT_EQ(row_of(e, "views held, over the formula, 1 KV head").ours, 4);  // (6 + 2) / 2
}

TEST(AttentionFused, BothWaysAgree) {
  const Exhibit e = experiments::attention_fused_exhibit(tiny_study());
  expect_complete(e);
  EXPECT_LT(row_of(e, "largest difference between the two").ours.value_or(1), 1e-4);
  EXPECT_EQ(e.rows[0].published, 10);
  EXPECT_EQ(e.rows[0].published_to, 20);
}

TEST(PrefillDecode, StandsUnderTheRoof) {
  const Exhibit e = experiments::prefill_decode_exhibit(tiny_study());
  expect_complete(e);
  expect_published(e, "prefill, FLOP per byte", 784, 1e9);
  expect_published(e, "decode, FLOP per byte", 0.4, 1e9);
  expect_published(e, "decode", 101, 1e9);
  expect_published(e, "decode, its ceiling", 1550, 1e12);
  EXPECT_NEAR(row_of(e, "decode, of its ceiling").published.value_or(0), 6.516, 0.001);
}

}  // namespace
}  // namespace headroom::testing
