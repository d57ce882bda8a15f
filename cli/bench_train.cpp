// headroom bench train: a training step's speed beside this machine's peak.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "cli/work_progress.h"
#include "configs/count.h"
#include "configs/memory.h"
#include "experiments/ceilings.h"
#include "experiments/train_bench.h"
#include "kernels/threads.h"
#include "train/device.h"
#include "train/precision.h"

namespace headroom::cli {
namespace {

using experiments::TrainBench;

struct BenchTrainOptions {
  std::string argument;
  int64_t steps = 10;
};

nlohmann::ordered_json to_json(const TrainBench& b, const char* precision, Device device) {
  nlohmann::ordered_json scaling = nlohmann::ordered_json::array();
  for (const experiments::ThreadScaling& each : b.scaling) {
    scaling.push_back({{"threads", each.threads},
                       {"tokens_per_s", each.tokens_per_s},
                       {"peak_gflops", each.peak_gflops},
                       {"fraction_of_peak", each.fraction_of_peak}});
  }
  return {{"precision", precision},
          {"threads", b.threads},
          {"tokens_per_s", b.tokens_per_s},
          {"gflop_per_step", b.gflop_per_step},
          {"gflops", b.gflops},
          {"peak_gflops", b.peak_gflops},
          {"gemm_gflops", b.gemm_gflops},
          {"amx_peak_gflops", b.amx_peak_gflops},
          {"fraction_of_peak", b.fraction_of_peak},
          {"step_ms", b.step_ms},
          {"forward_ms", b.parts.forward},
          {"backward_ms", b.parts.backward},
          {"clip_ms", b.parts.clip},
          {"optimizer_ms", b.parts.optimizer},
          {"muon_extra_ms", b.parts.muon_extra},
          {experiments::peak_bytes_name(device), b.peak_bytes},
          {"planned_bytes", b.planned_bytes},
          {"scaling", scaling}};
}

std::string to_text(const TrainBench& b, Device device, const std::string& heading) {
  const auto ms = [](double value) { return fmt::format("{:.1f} ms", value); };
  std::vector<Row> rows = {{"step", ms(b.step_ms), fmt::format("{:.0f} tokens/s", b.tokens_per_s)},
                           {"  forward", ms(b.parts.forward)},
                           {"  backward", ms(b.parts.backward)},
                           {"  clipping", ms(b.parts.clip)},
                           {"  AdamW", ms(b.parts.optimizer)}};
  if (b.parts.muon_extra > 0) {
    rows.push_back({"  Muon would add", ms(b.parts.muon_extra),
                    fmt::format("{:.0f} % of the step", 100 * b.parts.muon_extra / b.step_ms)});
  }
  rows.push_back({"arithmetic", fmt::format("{:.1f} GFLOP/s", b.gflops),
                  fmt::format("{:.1f} GFLOP a step", b.gflop_per_step)});
  const bool cpu = device == kCpu;
  rows.push_back({cpu ? "FMA peak" : "best matrix product",
                  fmt::format("{:.1f} GFLOP/s", b.peak_gflops),
                  fmt::format("{:.1f} % reached", 100 * b.fraction_of_peak)});
  const bool amx = b.amx_peak_gflops > 0;
  if (amx) {
    rows.push_back({"AMX peak", fmt::format("{:.1f} GFLOP/s", b.amx_peak_gflops),
                    fmt::format("{:.1f} % reached", 100 * b.gflops / b.amx_peak_gflops)});
  }
  if (cpu) {
    const double ceiling = amx ? b.amx_peak_gflops : b.peak_gflops;
    rows.push_back({"best matrix product", fmt::format("{:.1f} GFLOP/s", b.gemm_gflops),
                    fmt::format("{:.1f} % of the {} peak", 100 * b.gemm_gflops / ceiling,
                                amx ? "AMX" : "FMA")});
  }
  rows.push_back(
      {"peak memory", configs::human_bytes(b.peak_bytes),
       fmt::format("planned {}: {:.2f} times that", configs::human_bytes(b.planned_bytes),
                   static_cast<double>(b.peak_bytes) / static_cast<double>(b.planned_bytes))});
  if (b.scaling.empty()) {
    return fmt::format("{}\n{}", heading, aligned(rows, 1, 2));
  }
  std::vector<Row> scaling = {{"threads", "tokens/s", "of their FMA peak"}};
  for (const experiments::ThreadScaling& each : b.scaling) {
    scaling.push_back({fmt::format("{}", each.threads), fmt::format("{:.0f}", each.tokens_per_s),
                       fmt::format("{:.1f} %", 100 * each.fraction_of_peak)});
  }
  return fmt::format("{}\n{}\n{}", heading, aligned(rows, 1, 2), aligned(scaling, 0, 2));
}

int run_bench_train(const BenchTrainOptions& options, const Common& common) {
  const ConfigArgument argument = load_config_argument(options.argument, common);
  const configs::Config& config = argument.config;
  const Device device = train::choose_device(common.device, config.train);
  const int64_t vocabulary = find_vocabulary(argument).value_or(kUsualVocabulary);
  use_configured_threads(common, config.train.threads);
  const train::PrecisionChoice precision = train::choose_precision(
      common.precision.value_or(config.train.precision), device, kernels::has_native_bf16());
  configs::require_training_memory(config, vocabulary,
                                   static_cast<int64_t>(size_of(precision.dtype)),
                                   configs::available_memory(device));
  TrainBench result;
  {
    WorkProgress progress(common, "bench train");
    result = experiments::bench_train(
        config,
        {.dtype = precision.dtype,
         .vocab_size = vocabulary,
         .steps = options.steps,
         .device = device},
        [&progress](int64_t done, int64_t all) { progress.at(done, all); });
  }
  if (common.json) {
    print_json(to_json(result, precision.dtype == DType::bf16 ? "bf16" : "fp32", device));
    return 0;
  }
  print(to_text(result, device,
                fmt::format("{}; a step of {} tokens in {} on {}",
                            bench_heading(argument.name, config.model, vocabulary), result.tokens,
                            precision.sentence, bench_device(device))));
  return 0;
}

}  // namespace

Action add_bench_train(CLI::App& app, Common& common) {
  const auto options = std::make_shared<BenchTrainOptions>();
  add_bench_argument(app, options->argument);
  add_whole(app, "--steps", options->steps, 5, 100000, "steps to time, after two that warm up");
  add_precision(app, common, "train.precision");
  set_footer(
      app,
      "  headroom bench train gqa --precision bf16\n"
      "  headroom bench train gpt-124m --set model.n_kv_head=4 --json\n\n"
      "Times forward, backward, clipping and AdamW on one batch of random tokens, whatever the\n"
      "config's optimizer and accumulation; what Muon would add is told apart. FLOP by design: 6 * "
      "matrices * tokens\n"
      "and 6 * n_layer * n_head * head_dim * (T + 1) * tokens. The FMA peak is a loop on\n"
      "registers alone, run between the steps; on a GPU its best matrix product stands there.\n"
      "Where the processor has matrix units for bf16, their peak stands below (AMX).",
      true);
  return [options, &common] { return run_bench_train(*options, common); };
}

}  // namespace headroom::cli
