// Tiny sweeps for the tests of experiments and cli: a config whose runs take milliseconds, an
// observer that remembers and interrupts, and results without what a clock said.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/sweep.h"
#include "train_run.h"

namespace headroom::testing {

/// One block, 16 wide, 4 heads; 20 steps of 4 x 16 characters, evaluated at steps 10 and 20.
inline configs::Config small_sweep(const std::filesystem::path& corpus) {
  configs::Config config = small_config(corpus);
  config.model.n_layer = 1;
  config.model.n_kv_head = 4;
  config.train.save_every = 0;  // after evaluations: every save waits for the disk
  config.sweep.n_kv_head = {4, 2};
  config.sweep.seeds = {1, 2};
  return config;
}

inline nlohmann::json results_of(const std::filesystem::path& sweep) {
  return nlohmann::json::parse(read_file(sweep / "results.json"));
}

/// Results that two sweeps of one config share.
inline nlohmann::json without_times(nlohmann::json results) {
  results.erase("seconds");
  results.erase("started");
  for (auto& row : results.at("rows")) {
    row.erase("seconds");
    for (auto& run : row.at("runs")) run.erase("seconds");
  }
  return results;
}

/// Remembers what it is told, and stops the sweep where it is asked to.
struct SweepRecorder : experiments::SweepObserver {
  int64_t stop_in_run = -1;     // index of the run, from 1
  int64_t stop_at_step = -1;    // of that run
  int64_t stop_after_run = -1;  // between two runs
  std::vector<std::string> notes;
  std::vector<experiments::RunPosition> begun;
  std::map<int64_t, std::map<int64_t, double>> losses;  // by index of the run, then by step
  std::vector<train::Progress> steps;
  std::vector<int64_t> runs_done;     // at each end of a run
  std::vector<std::string> warnings;  // likewise

  void note(const std::string& sentence) override { notes.push_back(sentence); }
  void run_begins(const experiments::RunPosition& run) override { begun.push_back(run); }
  void stepped(const train::Progress& p) override { steps.push_back(p); }
  void evaluated(int64_t step, const train::Evaluation& e, bool) override {
    losses[begun.back().index][step] = e.loss_nats;
  }
  void run_ended(const experiments::Sweep&, const experiments::Summary& summary,
                 const std::string& warning) override {
    runs_done.push_back(summary.runs_done);
    warnings.push_back(warning);
  }
  bool stop_requested() override {
    const bool between = static_cast<int64_t>(runs_done.size()) == stop_after_run;
    const bool within = !begun.empty() && begun.back().index == stop_in_run && !steps.empty() &&
                        steps.back().step == stop_at_step;
    return between || within;
  }
};

struct SweepPlace : Workplace {
  using Workplace::Workplace;
  configs::Config config() const { return small_sweep(corpus); }
  experiments::SweepOutcome sweep(const configs::Config& config, const std::string& name,
                                  SweepRecorder& recorder, bool resume = false) const {
    return experiments::run_sweep(config, {.folder = folder / name, .resume = resume}, recorder);
  }
  /// The refusal, and that nothing was begun.
  std::string refusal(const configs::Config& config, const std::string& name,
                      bool resume = false) const {
    SweepRecorder recorder;
    std::string message = message_of([&] { sweep(config, name, recorder, resume); });
    EXPECT_TRUE(recorder.begun.empty() && recorder.steps.empty());
    return message;
  }
};

/// PATH without any program until the end of the scope: no chart is drawn, which takes longer than
/// these runs.
class NoCharts {
 public:
  NoCharts() { setenv("PATH", "/nonexistent", 1); }
  ~NoCharts() { setenv("PATH", path_.c_str(), 1); }
  NoCharts(const NoCharts&) = delete;
  NoCharts& operator=(const NoCharts&) = delete;

 private:
  std::string path_ = getenv("PATH");
};

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace headroom::testing
