// headroom bench memory: what the cache takes from the allocator, beside the formula.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "cli/work_progress.h"
#include "configs/count.h"
#include "configs/memory.h"
#include "configs/size.h"
#include "experiments/format.h"
#include "experiments/memory_bill.h"
#include "kernels/threads.h"
#include "train/device.h"
#include "train/precision.h"

namespace headroom::cli {
namespace {

using experiments::MemoryBill;

struct BenchMemoryOptions {
  std::string argument;
  std::vector<int64_t> contexts = {1024, 2048, 4096};
};

nlohmann::ordered_json to_json(const std::vector<MemoryBill>& bills, int64_t token) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const MemoryBill& bill : bills) {
    rows.push_back({{"context", bill.context},
                    {"allocated_bytes", bill.allocated_bytes},
                    {"formula_bytes", bill.formula_bytes}});
  }
  return {{"rows", rows}, {"cache_bytes_per_token", token}};
}

std::string to_text(const std::vector<MemoryBill>& bills) {
  std::vector<Row> rows = {{"context", "allocated", "formula", "difference"}};
  for (const MemoryBill& bill : bills) {
    rows.push_back({fmt::format("{}", bill.context), configs::human_bytes(bill.allocated_bytes),
                    configs::human_bytes(bill.formula_bytes),
                    fmt::format("{} bytes", experiments::format_count(bill.allocated_bytes -
                                                                      bill.formula_bytes))});
  }
  return aligned(rows, 0, 2);
}

int run_bench_memory(const BenchMemoryOptions& options, const Common& common) {
  const ConfigArgument argument = load_config_argument(options.argument, common);
  const configs::ModelConfig& config = argument.config.model;
  const Device device = train::choose_device(common.device, argument.config.train);
  const int64_t vocabulary = find_vocabulary(argument).value_or(kUsualVocabulary);
  use_configured_threads(common, argument.config.train.threads);
  const train::PrecisionChoice precision = train::choose_precision(
      common.precision.value_or(configs::Precision::fp32), device, kernels::has_native_bf16());
  const int64_t longest = *std::max_element(options.contexts.begin(), options.contexts.end());
  const configs::KVTypes types = configs::kv_types_of(precision.dtype);
  configs::require_cache_memory(config, vocabulary, longest, 1, types, "--contexts",
                                configs::available_memory(device));
  require_positions(config, longest);
  const nn::GPT model(config, vocabulary, nn::Scope{.seed = 1, .device = device});
  std::vector<MemoryBill> bills;
  {
    WorkProgress progress(common, "bench memory");
    bills = experiments::bench_memory(
        model, options.contexts, precision.dtype,
        [&progress](int64_t done, int64_t all) { progress.at(done, all); });
  }
  const int64_t token = configs::cache_bytes(config, 1, 1, types);
  if (common.json) {
    print_json(to_json(bills, token));
    return 0;
  }
  print(fmt::format("{}; a cache in {}\n  a token: {}\n{}",
                    bench_heading(argument.name, config, vocabulary), name_of(precision.dtype),
                    configs::cache_formula(config, 1, 1, types), to_text(bills)));
  return 0;
}

}  // namespace

Action add_bench_memory(CLI::App& app, Common& common) {
  const auto options = std::make_shared<BenchMemoryOptions>();
  add_bench_argument(app, options->argument);
  add_contexts(app, options->contexts);
  add_precision(app, common, "fp32");
  set_footer(app,
             "  headroom bench memory gpt-124m\n"
             "  headroom bench memory gqa --contexts 256,1024 --set model.n_kv_head=1 --json\n\n"
             "Allocated: by how much the allocator's bytes in use grow from before the cache is "
             "made to after a\nprompt has gone through it. Formula: 2 * n_layer * n_kv_head * "
             "head_dim * tokens * bytes.",
             true);
  return [options, &common] { return run_bench_memory(*options, common); };
}

}  // namespace headroom::cli
