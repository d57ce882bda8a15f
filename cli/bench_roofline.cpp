// headroom bench roofline: prefill and decode beside the machine's arithmetic and memory ceilings.
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
#include "experiments/roofline.h"
#include "kernels/threads.h"
#include "train/device.h"
#include "train/precision.h"

namespace headroom::cli {
namespace {

using experiments::Roofline;

struct BenchRooflineOptions {
  std::string argument;
  int64_t tokens = 2048, context = 512, steps = 32, most_sequences = 32;
};

const char* precision_name(DType dtype) { return dtype == DType::bf16 ? "bf16" : "fp32"; }

nlohmann::ordered_json to_json(const Roofline& r, DType precision) {
  nlohmann::ordered_json decode = nlohmann::ordered_json::array();
  for (const experiments::DecodePoint& each : r.decode) {
    decode.push_back({{"weights", each.weights},
                      {"activations", precision_name(each.activations)},
                      {"tokens_per_s", each.tokens_per_s},
                      {"bytes_per_token", each.bytes_per_token},
                      {"fraction_of_bandwidth", each.fraction_of_bandwidth},
                      {"flop_per_byte", each.flop_per_byte}});
  }
  nlohmann::ordered_json batches = nlohmann::ordered_json::array();
  for (const experiments::BatchPoint& each : r.batches) {
    batches.push_back({{"batch", each.batch},
                       {"n_kv_head", each.n_kv_head},
                       {"tokens_per_s", each.tokens_per_s}});
  }
  return {{"read_bandwidth_gb_s", r.read_bandwidth_gb_s},
          {"peak_gflops", {{"fp32", r.peak_fp32_gflops}, {"bf16", r.peak_bf16_gflops}}},
          {"amx_peak_gflops", r.amx_peak_gflops},
          {"prefill",
           {{"precision", precision_name(precision)},
            {"tokens", r.prefill.tokens},
            {"tokens_per_s", r.prefill.tokens_per_s},
            {"gflops", r.prefill.gflops},
            {"fraction_of_peak", r.prefill.fraction_of_peak},
            {"flop_per_byte", r.prefill.flop_per_byte}}},
          {"decode", decode},
          {"batches", batches}};
}

/// Products of bf16 may use matrix units, whose ceiling is the higher one.
std::string prefill_share(const Roofline& r, DType precision) {
  if (precision != DType::bf16 || r.amx_peak_gflops == 0) {
    return fmt::format("{:.1f} %", 100 * r.prefill.fraction_of_peak);
  }
  return fmt::format("{:.1f} % (AMX), {:.1f} % (FMA)", 100 * r.prefill.gflops / r.amx_peak_gflops,
                     100 * r.prefill.fraction_of_peak);
}

/// The line of what this machine can do.
std::string ceilings(const Roofline& r, Device device) {
  const bool cpu = device == kCpu;
  return fmt::format(
      "{} bandwidth {:.1f} GB/s, {} {:.1f} GFLOP/s in fp32 and {:.1f} in bf16{}",
      cpu ? "read" : "copy", r.read_bandwidth_gb_s, cpu ? "FMA peak" : "best matrix product",
      r.peak_fp32_gflops, r.peak_bf16_gflops,
      r.amx_peak_gflops > 0 ? fmt::format(", AMX peak {:.1f} in bf16", r.amx_peak_gflops) : "");
}

std::string points(const Roofline& r, const BenchRooflineOptions& options, DType precision) {
  std::vector<Row> rows = {{"", "tokens/s", "GFLOP/s", "GB/s", "FLOP/byte", "of its ceiling"}};
  rows.push_back({fmt::format("prefill of {} in {}", r.prefill.tokens, precision_name(precision)),
                  fmt::format("{:.0f}", r.prefill.tokens_per_s),
                  fmt::format("{:.1f}", r.prefill.gflops), "",
                  fmt::format("{:.0f}", r.prefill.flop_per_byte), prefill_share(r, precision)});
  for (const experiments::DecodePoint& each : r.decode) {
    const double gb = static_cast<double>(each.bytes_per_token) * each.tokens_per_s / 1e9;
    rows.push_back({fmt::format("decode at {}, weights in {}", options.context, each.weights),
                    fmt::format("{:.1f}", each.tokens_per_s),
                    fmt::format("{:.1f}", gb * each.flop_per_byte), fmt::format("{:.1f}", gb),
                    fmt::format("{:.2f}", each.flop_per_byte),
                    fmt::format("{:.1f} %", 100 * each.fraction_of_bandwidth)});
  }
  return aligned(rows, 1, 2);
}

/// Batches down, n_kv_head across.
std::string batch_table(const Roofline& r, int64_t context) {
  std::vector<Row> rows = {{"batch"}};
  for (const experiments::BatchPoint& each : r.batches) {
    if (each.batch == r.batches.front().batch) {
      rows[0].push_back(fmt::format("n_kv_head {}", each.n_kv_head));
    }
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& one) {
      return one[0] == fmt::format("{}", each.batch);
    });
    const std::string rate = fmt::format("{:.1f}", each.tokens_per_s);
    if (row == rows.end()) {
      rows.push_back({fmt::format("{}", each.batch), rate});
    } else {
      row->push_back(rate);
    }
  }
  return fmt::format("\ndecoded tokens/s of a batch at context {}, weights and cache in f32\n{}",
                     context, aligned(rows, 0, 2));
}

/// Each of sweep.n_kv_head that this model can have. A latent serves every head: there is one
/// model.
std::vector<int64_t> columns(const configs::Config& config) {
  std::vector<int64_t> kv_heads;
  std::ranges::copy_if(config.sweep.n_kv_head, std::back_inserter(kv_heads), [&](int64_t each) {
    return !config.model.mla() && config.model.n_head % each == 0;
  });
  return kv_heads.empty() ? std::vector<int64_t>{config.model.n_kv_head} : kv_heads;
}

experiments::RooflineOptions plan_points(const BenchRooflineOptions& options,
                                         const configs::Config& config, int64_t vocabulary,
                                         DType precision, Device device) {
  experiments::RooflineOptions points;
  points.device = device;
  points.prefill_dtype = precision;
  points.prefill_tokens = options.tokens;
  points.context = options.context;
  points.steps = options.steps;
  for (int64_t batch = 1; batch <= options.most_sequences; batch *= 2) {
    points.batches.push_back(batch);
  }
  points.n_kv_head = columns(config);
  const int64_t most_heads = *std::max_element(points.n_kv_head.begin(), points.n_kv_head.end());
  configs::ModelConfig widest = config.model;
  widest.given_head_dim = config.model.head_dim();
  widest.n_kv_head = most_heads;
  configs::require_cache_memory(widest, vocabulary, points.batch_context,
                                std::max<int64_t>(1, options.most_sequences), configs::KVTypes(),
                                "--sequences", configs::available_memory(device));
  return points;
}

int run_bench_roofline(const BenchRooflineOptions& options, const Common& common) {
  const ConfigArgument argument = load_config_argument(options.argument, common);
  const configs::Config& config = argument.config;
  const Device device = train::choose_device(common.device, config.train);
  const int64_t vocabulary = find_vocabulary(argument).value_or(kUsualVocabulary);
  use_configured_threads(common, config.train.threads);
  const train::PrecisionChoice precision = train::choose_precision(
      common.precision.value_or(config.train.precision), device, kernels::has_native_bf16());
  const experiments::RooflineOptions points_wanted =
      plan_points(options, config, vocabulary, precision.dtype, device);
  require_positions(config.model, std::max({options.tokens, options.context + 1,
                                            points_wanted.batch_context + 1}));
  Roofline result;
  {
    WorkProgress progress(common, "bench roofline");
    result = experiments::bench_roofline(
        config.model, vocabulary, points_wanted,
        [&progress](int64_t done, int64_t all) { progress.at(done, all); });
  }
  if (common.json) {
    print_json(to_json(result, precision.dtype));
    return 0;
  }
  print(fmt::format(
      "{} on {}\n  {}\n\n{}{}", bench_heading(argument.name, config.model, vocabulary),
      bench_device(device), ceilings(result, device), points(result, options, precision.dtype),
      result.batches.empty() ? "" : batch_table(result, points_wanted.batch_context)));
  return 0;
}

}  // namespace

Action add_bench_roofline(CLI::App& app, Common& common) {
  const auto options = std::make_shared<BenchRooflineOptions>();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  add_bench_argument(app, options->argument);
  add_whole(app, "--tokens", options->tokens, 1, kMost, "of the prompt");
  add_whole(app, "--context", options->context, 1, kMost, "that a decoded token attends to");
  add_whole(app, "--steps", options->steps, 5, 100000, "tokens decoded per type of weights");
  add_whole(app, "--sequences", options->most_sequences, 0, 4096,
            "the largest batch of the table of batches; 0: no table");
  add_precision(app, common, "train.precision");
  set_footer(
      app,
      "  headroom bench roofline gpt-124m --precision bf16\n"
      "  headroom bench roofline gqa --sequences 0 --json\n\n"
      "An untrained model; the head is computed, and counted, for a prompt's last row only.\n"
      "A decoded token reads the weights and its context's keys and values; their bytes\n"
      "stand beside what this machine reads per second, measured in between. Weights that\n"
      "a cache holds can be read faster than that. The table of batches has a column for\n"
      "each of sweep.n_kv_head that divides model.n_head.",
      true);
  return [options, &common] { return run_bench_roofline(*options, common); };
}

}  // namespace headroom::cli
