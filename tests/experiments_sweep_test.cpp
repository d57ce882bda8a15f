// The sweep: what it trains, what it writes when, that its models differ in nothing but their KV
// heads, and the time left.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "experiments/sweep_runs.h"
#include "experiments/table.h"
#include "sweep_run.h"
#include "tensor/safetensors.h"
#include "train/batches.h"
#include "train/run_folder.h"

namespace headroom::testing {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    c == ',' ? void(cells.emplace_back()) : cells.back().push_back(c);
  }
  return cells;
}

std::vector<std::vector<std::string>> csv_of(const fs::path& file) {
  std::istringstream lines(read_file(file));
  std::vector<std::vector<std::string>> all;
  for (std::string line; std::getline(lines, line);) all.push_back(cells_of(line));
  return all;
}

}  // namespace

TEST(Sweep, TrainsOtherReliefsBesideTheHeadsAndTakesThemUpLater) {
  const NoCharts no_charts;
  const SweepPlace place;
  configs::Config config = place.config();
  config.sweep.n_kv_head = {4};
  SweepRecorder first, second;
  place.sweep(config, "sweep", first);
  config.sweep.also = {configs::Relief::mla, configs::Relief::window,
                       configs::Relief::learned_sink};
  const auto outcome = place.sweep(config, "sweep", second, true);
  ASSERT_EQ(second.begun.size(), 6U);  // two runs are kept
  EXPECT_EQ(second.begun[0].title, "mla");
  EXPECT_EQ(second.begun[2].title, "learned-sink");
  const json results = results_of(place.folder / "sweep");
  const auto& rows = results.at("rows");
  ASSERT_EQ(rows.size(), 4U);
  // Heads of 4, K and V in f32; a latent of 8 and 2 rotated; a window of 4 of 16 tokens.
  const std::vector<std::tuple<std::string, std::string, int64_t>> expected = {
      {"kv4", "mha", 2 * 4 * 4 * 4},
      {"mla", "mla", (8 + 2) * 4},
      {"window", "window", 2 * 4 * 4 * 4 / 4},
      {"learned-sink", "learned-sink", 2 * 4 * 4 * 4}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i].at("name"), std::get<0>(expected[i]));
    EXPECT_EQ(rows[i].at("attention"), std::get<1>(expected[i]));
    EXPECT_EQ(rows[i].at("cache_bytes_per_token"), std::get<2>(expected[i]));
    EXPECT_EQ(rows[i].at("runs").size(), 2U);
    EXPECT_EQ(rows[i].at("delta_vs_mha").at("mean").is_number(), true);
    EXPECT_EQ(rows[i].at("published_val_loss").is_null(), true);
  }
  const std::string table = experiments::sweep_table(outcome.sweep, outcome.summary);
  EXPECT_TRUE(holds(table, "\nlearned-sink ")) << table;
  EXPECT_TRUE(holds(read_file(place.folder / "sweep" / "report.html"), "<h3>mla</h3>"));
  // A run of it is a run like any other.
  EXPECT_TRUE(train::load_run(place.folder / "sweep" / "mla-seed2").config.model.mla());
  config.sweep.also = {configs::Relief::mla};
  EXPECT_TRUE(holds(place.refusal(config, "sweep", true), "sweep.also is [mla, window, learned"));
}

TEST(Sweep, TrainsEveryVariantWithEverySeed) {
  const SweepPlace place;
  configs::Config config = place.config();
  config.sweep.n_kv_head = {4, 2, 1};
  SweepRecorder recorder;
  const auto outcome = place.sweep(config, "sweep", recorder);
  EXPECT_FALSE(outcome.interrupted);

  // A whole comparison first, then the next seed.
  ASSERT_EQ(recorder.begun.size(), 6U);
  for (int64_t i = 0; i < 6; ++i) {
    const experiments::RunPosition& run = recorder.begun[static_cast<size_t>(i)];
    EXPECT_EQ((std::array{run.index, run.count, run.n_kv_head, run.seed}),
              (std::array<int64_t, 4>{i + 1, 6, 4 >> (i % 3), i / 3 + 1}));
  }
  const json results = results_of(place.folder / "sweep");
  EXPECT_TRUE(results.at("finished"));
  EXPECT_EQ(results.at("rows").size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    // 16 characters; 16 wide; heads of 4: 2 * 16 * 4 * (4 + K) in attention, 2 * 16 * 32 in the
    // MLP.
    const int64_t heads = 4 >> i, attention = 128 * (4 + heads);
    const json& row = results.at("rows")[i];
    EXPECT_EQ(row.at("name"), fmt::format("kv{}", heads));
    EXPECT_EQ(row.at("n_kv_head"), heads);
    EXPECT_EQ(row.at("attention"), i == 0 ? "mha" : i == 1 ? "gqa" : "mqa");
    EXPECT_EQ(row.at("n_layer"), 1);
    EXPECT_EQ(row.at("n_ff"), 32);
    EXPECT_EQ(row.at("attention_params_per_layer"), attention);
    EXPECT_EQ(row.at("params"), 16 * 16 + attention + 1024 + 3 * 16);
    EXPECT_EQ(row.at("cache_bytes_per_token"), 2 * heads * 4 * 4);
    EXPECT_EQ(row.at("tokens"), 20 * 4 * 16);
    EXPECT_GE(row.at("sample").get<std::string>().size(), 300U);
    for (size_t seed = 0; seed < 2; ++seed) {
      const auto told = recorder.losses.at(static_cast<int64_t>(seed * 3 + i + 1));
      const json& run = row.at("runs")[seed];
      EXPECT_EQ(run.at("seed"), seed + 1);
      EXPECT_EQ(run.at("tokens"), 1280);
      EXPECT_EQ(run.at("final_val_loss"), told.at(20));
      EXPECT_EQ(run.at("best_val_loss"), std::min(told.at(10), told.at(20)));
      EXPECT_EQ(run.at("best_step"), told.at(10) < told.at(20) ? 10 : 20);
      ASSERT_EQ(run.at("curve").size(), 2U);
      EXPECT_EQ(run.at("curve")[0],
                json({{"step", 10}, {"tokens", 640}, {"val_loss", told.at(10)}}));
      EXPECT_EQ(row.at("final_loss").at("values")[seed], told.at(20));
    }
  }
  const std::string report = read_file(place.folder / "sweep" / "report.html");
  EXPECT_TRUE(holds(report, "2,352") && holds(report, "<svg"));
  EXPECT_EQ(recorder.warnings, std::vector<std::string>(6));
}

TEST(Sweep, ARunIsTheRunThatTrainMakes) {
  const NoCharts no_charts;
  const SweepPlace place;
  SweepRecorder recorder;
  place.sweep(place.config(), "sweep", recorder);
  configs::Config alone = place.config();
  alone.model.n_kv_head = 2;
  alone.train.seed = 2;
  Recorder r;
  place.train(alone, "alone", r);
  for (const char* file : {"best.safetensors", "last.safetensors"}) {
    EXPECT_EQ(read_file(place.folder / "sweep" / "kv2-seed2" / file),
              read_file(place.folder / "alone" / file));
  }
}

TEST(Sweep, ResultFilesHaveTheStatisticsOfTwoSeeds) {
  const NoCharts no_charts;
  const SweepPlace place;
  SweepRecorder recorder;
  const auto outcome = place.sweep(place.config(), "sweep", recorder);
  const json results = results_of(place.folder / "sweep");
  for (const char* key :
       {"rows", "resolvable_difference", "machine", "config", "seeds", "corpus"}) {
    EXPECT_TRUE(results.contains(key) && !results.at(key).is_null()) << key;
  }
  EXPECT_EQ(results.at("seeds"), json({1, 2}));
  EXPECT_EQ(results.at("corpus"), "corpus.txt");
  EXPECT_EQ(results.at("machine").at("precision"), "fp32");
  EXPECT_EQ(results.at("machine").at("threads"), 1);
  EXPECT_TRUE(holds(results.at("config"), "n_kv_head: [4, 2]"));
  // Two values lie sqrt(2) sd apart; t(0.975, 1) = 12.706.
  const json& mha = results.at("rows")[0].at("val_loss").at("values");
  const json& gqa = results.at("rows")[1].at("val_loss").at("values");
  const double a = mha[0], b = mha[1], c = gqa[0], d = gqa[1];
  const json& row = results.at("rows")[1];
  EXPECT_NEAR(row.at("val_loss").at("mean"), (c + d) / 2, 1e-12);
  EXPECT_NEAR(row.at("val_loss").at("sd"), std::abs(c - d) / std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(row.at("delta_vs_mha").at("mean"), (c - a + d - b) / 2, 1e-12);
  EXPECT_NEAR(row.at("delta_vs_mha").at("ci95"), 12.7062 * std::abs(c - a - d + b) / 2, 1e-4);
  EXPECT_EQ(results.at("resolvable_difference"), row.at("delta_vs_mha").at("ci95"));
  EXPECT_GT(row.at("delta_vs_mha").at("p"), 0.0);

  const auto csv = csv_of(place.folder / "sweep" / "results.csv");
  ASSERT_EQ(csv.size(), 1U + 4 * 2);
  for (const auto& line : csv) EXPECT_EQ(line.size(), csv[0].size());
  EXPECT_EQ(csv[0].back(), "val_loss");
  EXPECT_EQ(std::stod(csv[2].back()), results.at("rows")[0].at("final_loss").at("values")[0]);
}

TEST(Sweep, OneSeedHasNoSpreadAndNoVerdict) {
  const NoCharts no_charts;
  const SweepPlace place;
  configs::Config config = place.config();
  config.sweep.seeds = {7};
  SweepRecorder recorder;
  const auto outcome = place.sweep(config, "sweep", recorder);
  const json results = results_of(place.folder / "sweep");
  EXPECT_TRUE(results.at("resolvable_difference").is_null());
  const json& row = results.at("rows")[1];
  EXPECT_TRUE(row.at("val_loss").at("sd").is_null() && row.at("final_loss").at("sd").is_null());
  EXPECT_TRUE(row.at("delta_vs_mha").at("ci95").is_null());
  EXPECT_TRUE(row.at("delta_vs_mha").at("p").is_null());
  EXPECT_TRUE(row.at("delta_vs_mha").at("mean").is_number());
  EXPECT_TRUE(holds(experiments::sweep_table(outcome.sweep, outcome.summary), "no verdict"));
}

TEST(Sweep, ResultsStandAfterTheFirstRun) {
  const SweepPlace place;
  SweepRecorder recorder;
  recorder.stop_after_run = 1;
  EXPECT_TRUE(place.sweep(place.config(), "sweep", recorder).interrupted);
  const fs::path sweep = place.folder / "sweep";
  const json results = results_of(sweep);
  EXPECT_FALSE(results.at("finished"));
  EXPECT_EQ(results.at("rows")[0].at("runs").size(), 1U);
  EXPECT_EQ(results.at("rows")[0].at("val_loss").at("mean"),
            results.at("rows")[0].at("runs")[0].at("best_val_loss"));
  EXPECT_EQ(results.at("rows")[1].at("runs").size(), 0U);
  EXPECT_TRUE(results.at("rows")[1].at("val_loss").at("mean").is_null());
  EXPECT_EQ(csv_of(sweep / "results.csv").size(), 1U + 2);
  EXPECT_TRUE(fs::exists(sweep / "report.html"));
  EXPECT_FALSE(fs::exists(sweep / "kv2-seed1"));  // a stop between two runs begins no other
}

TEST(Sweep, ModelsBeginAsEqualAsTheirShapesAllow) {
  const NoCharts no_charts;
  const SweepPlace place;
  configs::Config config = place.config();
  config.sweep.n_kv_head = {4, 1};
  config.train.steps = 0;
  config.train.warmup_steps = 0;
  SweepRecorder recorder;
  EXPECT_FALSE(place.sweep(config, "sweep", recorder).interrupted);
  const fs::path sweep = place.folder / "sweep";
  const auto bytes = [](const Tensor& t) {
    return std::string(reinterpret_cast<const char*>(t.data<float>()),
                       static_cast<size_t>(t.numel()) * sizeof(float));
  };
  for (const int seed : {1, 2}) {
    const SafetensorsFile mha(sweep / fmt::format("kv4-seed{}", seed) / "last.safetensors"),
        mqa(sweep / fmt::format("kv1-seed{}", seed) / "last.safetensors"),
        other(sweep / fmt::format("kv4-seed{}", 3 - seed) / "last.safetensors");
    std::set<std::string> equal, narrower;
    for (const auto& [name, info] : mqa.tensors()) {
      if (name.starts_with("optimizer.")) continue;
      const Tensor narrow = mqa.read(name), wide = mha.read(name);
      // Row n of a projection is the same numbers however many rows follow it.
      EXPECT_EQ(bytes(wide).substr(0, bytes(narrow).size()), bytes(narrow)) << name;
      (wide.shape() == narrow.shape() ? equal : narrower).insert(name);
      if (!name.ends_with("norm.weight")) {
        EXPECT_NE(bytes(other.read(name)), bytes(wide)) << name;
      }
    }
    EXPECT_EQ(equal.count("model.embed_tokens.weight"), 1U);
    EXPECT_EQ(equal.count("model.layers.0.self_attn.q_proj.weight"), 1U);
    EXPECT_EQ(narrower, (std::set<std::string>{"model.layers.0.self_attn.k_proj.weight",
                                               "model.layers.0.self_attn.v_proj.weight"}));
  }
}

TEST(Sweep, ModelsReadTheSameBatches) {
  const SweepPlace place;
  const auto plan = experiments::plan_sweep(place.config(), kCpu);
  ASSERT_EQ(plan.variants.size(), 2U);
  const auto batches = [&](size_t variant, int64_t seed) {
    const configs::Config run = experiments::run_config(plan.variants[variant], seed);
    return train::Batches(std::vector<int32_t>(1000, 0),
                          {.block_size = run.model.block_size,
                           .batch_size = run.train.batch_size,
                           .grad_accumulation = run.train.grad_accumulation,
                           .order = run.data.order,
                           .seed = static_cast<uint64_t>(run.train.seed)});
  };
  const auto mha = batches(0, 1), gqa = batches(1, 1), other = batches(1, 2);
  int differing = 0;
  for (int64_t step = 1; step <= 20; ++step) {
    for (int64_t sequence = 0; sequence < 4; ++sequence) {
      EXPECT_EQ(mha.start(step, sequence), gqa.start(step, sequence));
      differing += mha.start(step, sequence) != other.start(step, sequence) ? 1 : 0;
    }
  }
  EXPECT_GT(differing, 60);  // another seed reads something else
}

TEST(Sweep, LaterRunsTakeWhatTheirFlopTook) {
  using experiments::later_seconds;
  // Four runs of 10 s and 5 FLOP each: in the first, in the third, in the last.
  EXPECT_DOUBLE_EQ(later_seconds(15, {}, {5, 10}), 30);
  EXPECT_DOUBLE_EQ(later_seconds(5, {10, 20}, {5, 10}), 10);
  EXPECT_DOUBLE_EQ(later_seconds(0, {15, 30}, {5, 10}), 0);
  // Later runs twice as large; a machine that has become slower.
  EXPECT_DOUBLE_EQ(later_seconds(20, {5, 10}, {5, 10}), 40);
  EXPECT_DOUBLE_EQ(later_seconds(10, {5, 10}, {5, 30}), 40);
  EXPECT_DOUBLE_EQ(later_seconds(0, {}, {}), 0);  // no steps, no FLOP
}

TEST(Sweep, TimeLeftCoversTheLaterRuns) {
  const NoCharts no_charts;
  using Clock = std::chrono::steady_clock;
  struct Watch : SweepRecorder {
    Clock::time_point begin, step_before;
    int64_t compared = 0;
    void started(const train::RunStart&) override { step_before = begin = Clock::now(); }
    void stepped(const train::Progress& p) override {
      SweepRecorder::stepped(p);
      if (begun.back().index == 1) {
        // Two more runs as long as this one take at least twice what its earlier steps took.
        const std::chrono::duration<double> spent = step_before - begin;
        EXPECT_GE(p.seconds_left, 2 * spent.count()) << p.step;
        ++compared;
      }
      step_before = Clock::now();
    }
  } watch;
  const SweepPlace place;
  configs::Config config = place.config();
  config.train.steps = 40;
  config.train.eval_every = 0;
  config.train.save_every = 0;
  config.sweep.n_kv_head = {4};
  config.sweep.seeds = {1, 2, 3};
  place.sweep(config, "sweep", watch);
  EXPECT_EQ(watch.compared, 40);
}

}  // namespace headroom::testing
