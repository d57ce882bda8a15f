// Arguments of benchmarks.
#include "cli/bench.h"

#include <fmt/format.h>

#include <CLI/App.hpp>

#include "cli/number_list.h"
#include "kernels/threads.h"
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

std::string bench_device(Device device) {
  const int threads = kernels::threads();
  return device == kCpu ? fmt::format("{} thread{}", threads, threads == 1 ? "" : "s")
                        : name_of(device);
}

std::string bench_heading(const std::string& name, const configs::ModelConfig& model,
                          int64_t vocab_size) {
  return fmt::format("{}: {} layers, {} wide, {}, vocabulary {}", name, model.n_layer, model.n_embd,
                     attention_in_words(model), vocab_size);
}

}  // namespace headroom::cli
