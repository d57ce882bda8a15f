// Tiny runs for the tests of train: a corpus, a config that trains in milliseconds, and an observer
// that remembers.
#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "configs/config.h"
#include "run_program.h"
#include "tensor/file.h"
#include "tensor/rng.h"
#include "train/trainer.h"

namespace headroom::testing {

/// `bytes` of text with something to learn: words of a small vocabulary.
inline std::string small_text(int64_t bytes) {
  static const char* words[] = {"the ", "king ", "is ",      "here, ",
                                "who ", "goes ", "there?\n", "a "};
  const RandomStream stream(7, "text");
  std::string text;
  for (uint64_t n = 0; static_cast<int64_t>(text.size()) < bytes; ++n) {
    text += words[stream.integer(n, std::size(words))];
  }
  text.resize(static_cast<size_t>(bytes));
  return text;
}

/// Two blocks, 16 wide, 4 heads on 2 KV heads, context 16; byte tokens of `corpus`.
inline configs::Config small_config(const std::filesystem::path& corpus) {
  configs::Config config;
  config.model.n_layer = 2;
  config.model.n_head = 4;
  config.model.n_kv_head = 2;
  config.model.n_embd = 16;
  config.model.given_n_ff = 32;
  config.model.block_size = 16;
  config.data.corpus = corpus.string();
  config.train.steps = 20;
  config.train.batch_size = 4;
  config.train.warmup_steps = 4;
  config.train.eval_every = 10;
  config.train.save_every = 5;
  config.train.precision = configs::Precision::fp32;
  config.train.threads = 1;
  return config;
}

/// Remembers all it is told; `stop_at` interrupts after that step.
struct Recorder : train::Observer {
  int64_t stop_at = -1;
  std::vector<std::string> notes;
  std::vector<train::Progress> steps;
  std::map<int64_t, train::Evaluation> evaluations;
  std::vector<int64_t> saves;
  train::RunStart start;

  void note(const std::string& sentence) override { notes.push_back(sentence); }
  void started(const train::RunStart& s) override { start = s; }
  void stepped(const train::Progress& p) override { steps.push_back(p); }
  void evaluated(int64_t step, const train::Evaluation& e, bool) override { evaluations[step] = e; }
  void saved(int64_t step, const std::filesystem::path&) override { saves.push_back(step); }
  bool stop_requested() override { return !steps.empty() && steps.back().step == stop_at; }
};

/// The lines of a run's metrics.jsonl, without their clock times.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(lines, line);) {
    all.push_back(nlohmann::json::parse(line));
    all.back().erase("seconds");
  }
  return all;
}

/// The message of the error that `work` throws; empty when it throws none.
template <class E = InputError>
std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

/// A folder with corpus.txt of `bytes` bytes.
struct Workplace {
  TemporaryFolder folder;
  std::filesystem::path corpus = folder / "corpus.txt";
  explicit Workplace(int64_t bytes = 3000) { write_file(corpus, small_text(bytes)); }
  configs::Config config() const { return small_config(corpus); }
  train::TrainResult train(const configs::Config& config, const std::string& run,
                           Recorder& recorder, bool resume = false) const {
    return train::train(config, {.folder = folder.path() / run, .resume = resume}, recorder);
  }
};

}  // namespace headroom::testing
