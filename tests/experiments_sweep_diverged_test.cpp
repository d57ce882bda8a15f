// Runs whose loss or weights are no number: the sweep goes on and says so.
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/sweep_runs.h"
#include "experiments/table.h"
#include "sweep_run.h"

namespace headroom::testing {

using nlohmann::json;

TEST(DivergedRuns, DontEndTheSweep) {
  const NoCharts no_charts;
  const SweepPlace place;
  configs::Config config = place.config();
  config.train.lr = 1e6;
  config.train.adamw_lr = 1e6;
  SweepRecorder recorder;
  const auto outcome = place.sweep(config, "sweep", recorder);
  EXPECT_FALSE(outcome.interrupted);
  EXPECT_EQ(recorder.begun.size(), 4U);
  EXPECT_EQ(outcome.summary.runs_done, 4);
  EXPECT_TRUE(outcome.sweep.finished);
  EXPECT_TRUE(holds(recorder.notes.front(), "this run counts as diverged"));
  const json row = results_of(place.folder / "sweep").at("rows")[1];
  EXPECT_EQ(row.at("verdict"), "a run diverged: no verdict");
  EXPECT_TRUE(row.at("final_loss").at("mean").is_null());
  EXPECT_TRUE(row.at("runs")[0].at("best_val_loss").is_null());
  EXPECT_TRUE(holds(experiments::sweep_table(outcome.sweep, outcome.summary), "diverged"));
}

TEST(DivergedRuns, AreAlsoThoseWhoseWeightsOverflow) {
  const NoCharts no_charts;
  const SweepPlace place;
  configs::Config config = place.config();
  // The loss stays finite while decay of lr * weight_decay = 1e6 blows the weights up: the norms
  // hide it.
  config.model.qk_norm = true;
  config.train.lr = config.train.adamw_lr = 1e4;
  config.train.weight_decay = 100;
  config.train.schedule = configs::Schedule::constant;
  config.train.save_every = 1;
  config.sweep.n_kv_head = {4};
  for (const bool resume : {false, true}) {
    SweepRecorder recorder;
    const auto outcome = place.sweep(config, "sweep", recorder, resume);
    EXPECT_TRUE(outcome.sweep.finished);
    EXPECT_TRUE(holds(recorder.notes.front(), "holds a NaN or an infinity after step"));
  }
}

TEST(DivergedRuns, KeepWhatTheyMeasured) {
  const TemporaryFolder folder;
  EXPECT_TRUE(std::isnan(experiments::read_diverged_run(folder.path(), 3, 64).best_loss));
  write_file(folder / "metrics.jsonl",
             R"({"step":1,"loss":3.0,"seconds":0.5}
{"step":2,"val_loss":2.5,"seconds":1.0}
{"step":4,"val_loss":2.25,"seconds":2.0}
{"step":6,"val_loss":2.75,"seconds":3.0}
{"step":7,"loss":9.0,"seconds":3.5}
{"step":8,"lo)");
  const auto run = experiments::read_diverged_run(folder.path(), 3, 64);
  EXPECT_EQ(run.seed, 3U);
  EXPECT_EQ(run.best_loss, 2.25);
  EXPECT_EQ(run.best_step, 4);
  EXPECT_TRUE(std::isnan(run.final_loss));
  EXPECT_EQ(run.tokens, 7 * 64);
  EXPECT_EQ(run.seconds, 3.5);
  ASSERT_EQ(run.curve.size(), 3U);
  EXPECT_EQ(run.curve[2].tokens, 6 * 64);

  // Its best loss stands in the table but in no comparison.
  experiments::Sweep sweep;
  sweep.seeds = {3, 4};
  const experiments::SeedRun good{.seed = 4, .best_loss = 2, .final_loss = 2, .curve = {}},
      also_good{.seed = 3, .best_loss = 2, .final_loss = 2, .curve = {}};
  sweep.rows.resize(2);
  sweep.rows[0].attention = "mha";
  sweep.rows[0].runs = {also_good, good};
  sweep.rows[1].runs = {run, good};
  const auto summary = experiments::summarize(sweep);
  EXPECT_EQ(summary.rows[1].best.mean, 2.125);
  EXPECT_EQ(summary.rows[1].verdict, experiments::Verdict::diverged);
  EXPECT_FALSE(summary.resolvable);
}

}  // namespace headroom::testing
