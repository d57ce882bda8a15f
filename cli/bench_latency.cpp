// headroom bench latency: the next token without a cache and with one, by context.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "cli/work_progress.h"
#include "configs/memory.h"
#include "experiments/latency.h"
#include "kernels/threads.h"
#include "train/device.h"
#include "train/precision.h"

namespace headroom::cli {
namespace {

using experiments::Latency;

struct BenchLatencyOptions {
  std::string argument;
  std::vector<int64_t> contexts = {512, 1024, 2048, 4096};
};

nlohmann::ordered_json to_json(const Latency& latency) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const experiments::LatencyRow& row : latency.rows) {
    rows.push_back({{"context", row.context},
                    {"naive_ms", row.naive_ms},
                    {"cached_ms", row.cached_ms},
                    {"fraction_of_bandwidth", row.fraction_of_bandwidth}});
  }
  return {{"rows", rows},
          {"naive_slope_us_per_token", latency.naive_slope_us_per_token},
          {"cached_slope_us_per_token", latency.cached_slope_us_per_token}};
}

std::string to_text(const Latency& latency) {
  std::vector<Row> rows = {{"context", "naive", "cached", "naive/cached", "cached, of bandwidth"}};
  for (const experiments::LatencyRow& row : latency.rows) {
    rows.push_back({fmt::format("{}", row.context), fmt::format("{:.2f} ms", row.naive_ms),
                    fmt::format("{:.2f} ms", row.cached_ms),
                    fmt::format("{:.1f}", row.naive_ms / row.cached_ms),
                    fmt::format("{:.1f} %", 100 * row.fraction_of_bandwidth)});
  }
  return fmt::format("{}  slope: naive {:.2f}, cached {:.3f} microseconds per token of context\n",
                     aligned(rows, 0, 2), latency.naive_slope_us_per_token,
                     latency.cached_slope_us_per_token);
}

int run_bench_latency(const BenchLatencyOptions& options, const Common& common) {
  const ConfigArgument argument = load_config_argument(options.argument, common);
  const configs::ModelConfig& config = argument.config.model;
  const Device device = train::choose_device(common.device, argument.config.train);
  const int64_t vocabulary = find_vocabulary(argument).value_or(kUsualVocabulary);
  use_configured_threads(common, argument.config.train.threads);
  const train::PrecisionChoice precision = train::choose_precision(
      common.precision.value_or(configs::Precision::fp32), device, kernels::has_native_bf16());
  const int64_t longest = *std::max_element(options.contexts.begin(), options.contexts.end()) + 1;
  configs::require_cache_memory(config, vocabulary, longest, 1,
                                configs::kv_types_of(precision.dtype), "--contexts",
                                configs::available_memory(device));
  require_positions(config, longest);
  const nn::GPT model(config, vocabulary, nn::Scope{.seed = 1, .device = device});
  Latency result;
  {
    WorkProgress progress(common, "bench latency");
    result = experiments::bench_latency(
        model, options.contexts, precision.dtype,
        [&progress](int64_t done, int64_t all) { progress.at(done, all); });
  }
  if (common.json) {
    print_json(to_json(result));
    return 0;
  }
  print(fmt::format("{}; the next token in {} on {}\n{}",
                    bench_heading(argument.name, config, vocabulary), precision.sentence,
                    bench_device(device), to_text(result)));
  return 0;
}

}  // namespace

Action add_bench_latency(CLI::App& app, Common& common) {
  const auto options = std::make_shared<BenchLatencyOptions>();
  add_bench_argument(app, options->argument);
  add_contexts(app, options->contexts);
  add_precision(app, common, "fp32");
  set_footer(
      app,
      "  headroom bench latency gpt-124m\n"
      "  headroom bench latency gqa --contexts 512,1024,2048 --set model.n_kv_head=1 --json\n\n"
      "Naive: the whole sequence again for one token. Cached: one token through the cache.\n"
      "Beside it stand the bytes that its token reads, weights and cache, per second, as a share\n"
      "of what this machine reads.\n"
      "The model is untrained, and what the cache holds is random: neither changes a time.",
      true);
  return [options, &common] { return run_bench_latency(*options, common); };
}

}  // namespace headroom::cli
