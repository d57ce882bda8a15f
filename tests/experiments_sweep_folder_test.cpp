// A sweep's folder: how it is gone on with, how it may grow, and what is refused before the first
// step.
#include <gtest/gtest.h>

#include <chrono>

#include "sweep_run.h"

namespace headroom::testing {

namespace fs = std::filesystem;
using nlohmann::json;

struct SweepFolder : ::testing::Test {
  NoCharts no_charts;
};

TEST_F(SweepFolder, ResumedEqualsUninterrupted) {
  const SweepPlace place;
  configs::Config config = place.config();
  config.train.save_every = 5;
  config.sweep.seeds = {1};
  SweepRecorder straight;
  place.sweep(config, "straight", straight);
  const json expected = without_times(results_of(place.folder / "straight"));
  // In the first run before any evaluation; off the saves of a later run; at the last step of one.
  for (const auto& [run, step] : {std::pair<int64_t, int64_t>{1, 3}, {2, 13}, {1, 20}}) {
    const std::string name = fmt::format("stopped{}-{}", run, step);
    SweepRecorder first, second;
    first.stop_in_run = run;
    first.stop_at_step = step;
    const auto outcome = place.sweep(config, name, first);
    EXPECT_TRUE(outcome.interrupted);
    EXPECT_EQ(outcome.summary.runs_done, step == 20 ? run : run - 1);
    EXPECT_FALSE(place.sweep(config, name, second, true).interrupted);
    EXPECT_EQ(second.steps.front().step, step == 20 ? 1 : step + 1);
    EXPECT_EQ(without_times(results_of(place.folder / name)), expected);
    for (const char* file : {"kv4-seed1/best.safetensors", "kv2-seed1/last.safetensors"}) {
      EXPECT_EQ(read_file(place.folder / name / file), read_file(place.folder / "straight" / file));
    }
  }
}

TEST_F(SweepFolder, AFinishedSweepIsOnlyReadAgain) {
  const SweepPlace place;
  SweepRecorder first, second;
  place.sweep(place.config(), "sweep", first);
  const json before = results_of(place.folder / "sweep");
  fs::remove(place.folder / "sweep" / "report.html");
  const auto outcome = place.sweep(place.config(), "sweep", second, true);
  EXPECT_TRUE(second.begun.empty() && second.steps.empty());
  EXPECT_TRUE(outcome.sweep.finished);
  EXPECT_EQ(results_of(place.folder / "sweep"), before);  // to the second
  EXPECT_TRUE(fs::exists(place.folder / "sweep" / "report.html"));
}

TEST_F(SweepFolder, SeedsAndHeadsMayGrow) {
  const SweepPlace place;
  configs::Config small = place.config(), large = place.config();
  small.sweep.n_kv_head = {4};
  small.sweep.seeds = {1};
  large.sweep.n_kv_head = {2, 4};
  large.sweep.seeds = {2, 1};
  SweepRecorder first, second, fresh;
  place.sweep(small, "grown", first);
  const fs::path grown = place.folder / "grown";
  std::map<fs::path, std::pair<std::string, fs::file_time_type>> kept;
  for (const char* file : {"best.safetensors", "last.safetensors"}) {
    const fs::path path = grown / "kv4-seed1" / file;
    kept[path] = {read_file(path), fs::last_write_time(path)};
  }
  // A sweep that is resumed the next day began when it began.
  const auto yesterday = fs::last_write_time(grown / "config.yaml") - std::chrono::hours(24);
  fs::last_write_time(grown / "config.yaml", yesterday);

  place.sweep(large, "grown", second, true);
  for (const auto& [path, before] : kept) {
    EXPECT_TRUE(read_file(path) == before.first && fs::last_write_time(path) == before.second)
        << path;
  }
  EXPECT_EQ(fs::last_write_time(grown / "config.yaml"), yesterday);
  ASSERT_EQ(second.begun.size(), 3U);
  EXPECT_EQ(second.begun[0].index, 2);
  EXPECT_EQ(second.begun[0].count, 4);
  EXPECT_EQ(second.runs_done, (std::vector<int64_t>{2, 3, 4}));  // none is ever lost
  EXPECT_TRUE(holds(second.notes.front(), "1 of 4 runs are finished"));
  place.sweep(large, "fresh", fresh);
  EXPECT_EQ(without_times(results_of(grown)), without_times(results_of(place.folder / "fresh")));
}

TEST_F(SweepFolder, RefusesAnotherConfigAndAnotherText) {
  const SweepPlace place;
  configs::Config config = place.config();
  SweepRecorder recorder;
  place.sweep(config, "sweep", recorder);
  EXPECT_TRUE(holds(place.refusal(config, "sweep"), "holds a sweep: --resume"));

  configs::Config changed = config;
  changed.train.lr = 0.5;
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "train.lr is 0.02 in"));
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "and 0.5 now"));
  changed = config;
  changed.model.n_layer = 3;
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "model.n_layer is 1 in"));
  changed = config;
  changed.sweep.seeds = {1, 3};
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "sweep.seeds is [1, 2] in"));
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "and [1, 3] now"));
  changed = config;
  changed.sweep.n_kv_head = {4};
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "sweep.n_kv_head is [4, 2] in"));
  changed = config;
  changed.sweep.fair = configs::Fairness::same_params;
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "sweep.fair is same-shape in"));

  // The text may lie elsewhere, but it must be the same one; new runs must not begin before that
  // is known.
  changed = config;
  changed.sweep.n_kv_head = {1, 4, 2};
  changed.data.corpus = (place.folder / "other.txt").string();
  write_file(changed.data.corpus, small_text(4000));
  EXPECT_TRUE(holds(place.refusal(changed, "sweep", true), "is not the text that"));
  write_file(changed.data.corpus, read_file(config.data.corpus));
  SweepRecorder again;
  EXPECT_FALSE(place.sweep(changed, "sweep", again, true).interrupted);
  EXPECT_EQ(again.begun.size(), 2U);
}

TEST_F(SweepFolder, RefusesBeforeTheFirstStep) {
  const SweepPlace place;
  configs::Config config = place.config();
  config.sweep.n_kv_head = {4, 3};
  EXPECT_TRUE(holds(place.refusal(config, "new"), "sweep.n_kv_head has 3 and model.n_head is 4"));
  config = place.config();
  config.data.corpus = (place.folder / "short.txt").string();
  write_file(config.data.corpus, small_text(60));
  EXPECT_NE(place.refusal(config, "new"), "");
  EXPECT_FALSE(fs::exists(place.folder / "new"));  // nor is anything left behind
  EXPECT_TRUE(holds(place.refusal(place.config(), "corpus.txt"), "it is not a directory"));

  Recorder r;
  place.train(place.config(), "run", r);
  EXPECT_TRUE(holds(place.refusal(place.config(), "run", true), "holds a training run"));
}

TEST_F(SweepFolder, RefusesADamagedRunBeforeTrainingOthers) {
  const SweepPlace place;
  SweepRecorder first;
  first.stop_after_run = 2;
  place.sweep(place.config(), "sweep", first);
  const fs::path last = place.folder / "sweep" / "kv2-seed1" / "last.safetensors";
  write_file(last, read_file(last).substr(0, 1000));
  EXPECT_TRUE(holds(place.refusal(place.config(), "sweep", true), last.string()));
}

}  // namespace headroom::testing
