// The exhibits on trained models, end to end on a sweep that takes milliseconds; drafts and
// uptraining by figures that are known.
#include <gtest/gtest.h>

#include "configs/print.h"
#include "experiments/exhibits.h"
#include "experiments/quality_exhibits.h"
#include "infer_model.h"
#include "reproduce_study.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using experiments::Drafting;
using experiments::DraftResult;
using experiments::Exhibit;
using experiments::Uptraining;

/// Two models of one block, 16 wide.
struct TrainedSweep : SweepPlace {
  NoCharts no_charts;
  fs::path sweep_folder = folder / "sweep";
  TrainedSweep() : SweepPlace(6000) {
    configs::Config small = config();
    small.sweep.seeds = {1};
    SweepRecorder nobody;
    sweep(small, "sweep", nobody);
  }
  experiments::Study study(bool quick = true) const {
    experiments::Study study = tiny_study(quick);
    study.folder = folder / "models";
    study.sweep = sweep_folder;
    return study;
  }
};

TEST(SweepExhibits, AreAllMadeOfATinySweep) {
  const TrainedSweep place;
  for (const auto& kind : experiments::exhibit_kinds()) {
    if (!kind.uses_sweep) continue;
    SCOPED_TRACE(kind.id);
    const Exhibit exhibit = kind.make(place.study());
    const bool nothing_to_take_back = std::string(kind.id) == "window-sinks";
    const bool no_multi_query = std::string(kind.id) == "cache-quality";
    if (!nothing_to_take_back && !no_multi_query) expect_complete(exhibit);
    EXPECT_FALSE(exhibit.rows.empty());
  }
}

TEST(SweepExhibits, FiguresFromGpt2BeginByTheModelThatDiffers) {
  const TrainedSweep place;
  for (const char* id : {"low-rank", "sink-mass", "learned-sink", "window-sinks"}) {
    for (const auto& kind : experiments::exhibit_kinds()) {
      if (std::string(kind.id) != id) continue;
      const Exhibit exhibit = kind.make(place.study());
      EXPECT_TRUE(exhibit.why.starts_with("The model differs: ")) << id;
      for (const auto& row : exhibit.rows) {
        if (row.published && row.note.find("GPT-2") != std::string::npos) {
          EXPECT_TRUE(row.note.starts_with("the model differs: ")) << id << ": " << row.figure;
        }
      }
    }
  }
}

TEST(LearnedSink, TrainsOnceAndAQuickStudyASmallerModel) {
  const TrainedSweep place;
  experiments::Study study = place.study();
  int64_t steps = 0;
  study.progress = [&](int64_t, int64_t all) { steps += all == 20 ? 1 : 0; };
  const Exhibit first = experiments::learned_sink_exhibit(study);
  EXPECT_TRUE(holds(first.setting, "16 wide"));
  EXPECT_EQ(steps, 20);
  EXPECT_EQ(experiments::learned_sink_exhibit(study), first);
  EXPECT_EQ(steps, 20);
  study.preset = [](const std::string&) {
    configs::Config small;
    small.model.n_layer = 1;
    small.model.n_head = small.model.n_kv_head = 2;
    small.model.n_embd = 8;
    small.model.block_size = 16;
    small.train.steps = 6;
    small.train.batch_size = 2;
    small.train.warmup_steps = 1;
    small.train.precision = configs::Precision::fp32;
    return small;
  };
  study.folder = place.folder / "quick";
  EXPECT_TRUE(holds(experiments::learned_sink_exhibit(study).setting, "8 wide"));
  study.quick = false;
  study.folder = place.folder / "full";
  EXPECT_TRUE(holds(experiments::learned_sink_exhibit(study).setting, "16 wide"));
}

TEST(LearnedSink, AnInterruptedTrainingIsSavedAndGoesOn) {
  const TrainedSweep place;
  experiments::Study study = place.study();
  int64_t step = 0;
  study.progress = [&](int64_t done, int64_t) { step = done; };
  study.stop_requested = [&] { return step == 7; };
  EXPECT_THROW(experiments::learned_sink_exhibit(study), experiments::Interrupted);
  study.stop_requested = [] { return false; };
  std::vector<int64_t> steps;
  study.progress = [&](int64_t done, int64_t all) {
    if (all == 20) steps.push_back(done);
  };
  experiments::learned_sink_exhibit(study);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front(), 8);
}

TEST(Draft, RatesFollowFromTheCounts) {
  Drafting d;
  d.guessed = 200;
  d.accepted = 150;
  d.passes = 50;
  d.plain_seconds = {3, 3, 90};  // the third met another program
  d.drafted_seconds = {1.5, 70, 1.5};
  d.alone_seconds = {0.75, 0.75, 0.75};
  EXPECT_DOUBLE_EQ(d.acceptance(), 0.75);
  EXPECT_DOUBLE_EQ(d.tokens_per_pass(), 4);
  EXPECT_DOUBLE_EQ(d.speed_up(), 2);
  EXPECT_DOUBLE_EQ(d.cost(), 0.25);
  EXPECT_DOUBLE_EQ(d.expected_speed_up(4), 2);  // 4 / (4 * 0.25 + 1)
}

TEST(Draft, AModelAcceptsAllItsOwnGreedyGuesses) {
  const auto model = small_model(small_config());
  infer::GenerateOptions options;
  options.tokens = 11;  // one from the prompt, then two rounds of five
  options.draft_tokens = 4;
  options.sampling.temperature = 0;
  int64_t prompts = 0;
  const Drafting d = experiments::measure_drafting(*model, *model, {tokens(6), tokens(9)}, options,
                                                   [&] { ++prompts; });
  EXPECT_EQ(prompts, 2);
  EXPECT_EQ(d.tokens, 22);
  EXPECT_EQ(d.unlike, 0);
  EXPECT_EQ(d.guessed, 16);
  EXPECT_EQ(d.accepted, 16);
  EXPECT_EQ(d.passes, 4);
  EXPECT_GT(d.speed_up(), 0);
}

TEST(Uptrain, ShowsWhatPoolingCostAndWhatCameBack) {
  const Uptraining u{.heads_before = 8,
                     .heads = 2,
                     .original_steps = 600,
                     .steps = 30,
                     .original = 1.5,
                     .pooled = 2.5,
                     .uptrained = 1.75,
                     .from_scratch = 1.55};
  Uptraining alone = u;
  alone.heads = 1;
  alone.from_scratch.reset();
  const Exhibit e = experiments::show_uptrain({u, alone});
  EXPECT_TRUE(holds(e.setting, "30 steps more (5 % of its 600)"));
  EXPECT_EQ(row_of(e, "n_kv_head 2, after 30 steps").note, "takes back 75 % of what pooling cost");
  EXPECT_EQ(row_of(e, "n_kv_head 2, from scratch").note,
            "uptraining ends +0.2000 from it, after 5 % of its steps");
  EXPECT_FALSE(row_of(e, "n_kv_head 1, from scratch").ours);
  EXPECT_FALSE(e.chart.empty());
  EXPECT_EQ(e.table.size(), 3u);
}

}  // namespace
}  // namespace headroom::testing
