// What the `bench` commands share: their argument, how they name a model, and how they tell how far
// they are.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "cli/live_line.h"

namespace headroom::cli {

/// Registers the positional CONFIG|RUN|PRESET.
void add_bench_argument(CLI::App& app, std::string& argument);
/// Registers --contexts, a list of numbers of tokens divided by commas.
void add_contexts(CLI::App& app, std::vector<int64_t>& contexts);
/// Refuses `tokens` that learned positions don't reach.
void require_positions(const configs::ModelConfig& model, int64_t tokens);
/// "gqa: 6 layers, 256 wide, 8 heads over 2 KV heads, vocabulary 65".
std::string bench_heading(const std::string& name, const configs::ModelConfig& model,
                          int64_t vocab_size);

class BenchProgress {
 public:
  BenchProgress(const Common& common, std::string what) : line_(common), what_(std::move(what)) {}

  /// Told before each part of the work, and after the last; parts take about equally long.
  void at(int64_t done, int64_t all);

 private:
  LiveLine line_;
  std::string what_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace headroom::cli
