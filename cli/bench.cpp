// Arguments and progress of benchmarks.
#include "cli/bench.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>

#include "cli/number_list.h"
#include "tensor/check.h"

namespace headroom::cli {

void add_bench_argument(CLI::App& app, std::string& argument) {
  app.add_option("CONFIG|RUN|PRESET", argument, "a YAML config, a run folder, or a preset's name")
      ->required();
}

void add_contexts(CLI::App& app, std::vector<int64_t>& contexts) {
  add_numbers(app, "--contexts", contexts, 1, "tokens before the next one");
}

void require_positions(const configs::ModelConfig& model, int64_t tokens) {
  check_input(
      model.position == configs::Position::rope || tokens <= model.block_size,
      "{} tokens pass model.block_size {}, where learned positions end: raise it with --set, "
      "or ask for fewer",
      tokens, model.block_size);
}

std::string bench_heading(const std::string& name, const configs::ModelConfig& model,
                          int64_t vocab_size) {
  return fmt::format("{}: {} layers, {} wide, {}, vocabulary {}", name, model.n_layer, model.n_embd,
                     attention_in_words(model), vocab_size);
}

void BenchProgress::at(int64_t done, int64_t all) {
  constexpr int64_t kLines = 5;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  const double each = done == 0 ? 0 : seconds.count() / static_cast<double>(done);
  const std::string left =
      done == 0 ? "" : fmt::format("  {} left", clock(each * static_cast<double>(all - done)));
  const std::string text = fmt::format("{} {}/{}{}", what_, done, all, left);
  if (line_.terminal()) {
    line_.live(text, text);
  } else if (done % std::max<int64_t>(1, all / kLines) == 0 || done == all) {
    line_.line(text);
  }
}

}  // namespace headroom::cli
