// Exhibit presets: what well-known models cache, by the formula.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "configs/count.h"
#include "configs/size.h"
#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"

namespace headroom::experiments {
namespace {

constexpr DType kHalf = DType::f16, kSingle = DType::f32;
constexpr double kMB = 1e6, kGB = 1e9, kKiB = 1024;

double bytes(const configs::ModelConfig& model, int64_t tokens, DType type) {
  return static_cast<double>(configs::cache_bytes(model, tokens, 1, configs::kv_types_of(type)));
}

double multi_head_times(configs::ModelConfig model, int64_t kv_heads) {
  model.given_head_dim = model.head_dim();
  model.n_kv_head = kv_heads;
  const double fewer = bytes(model, 1, kHalf);
  model.n_kv_head = model.n_head;
  return bytes(model, 1, kHalf) / fewer;
}

std::vector<ExhibitRow> rows(const Study& study) {
  const auto model = [&](const char* name) { return study.preset(name).model; };
  const configs::ModelConfig gpt3 = model("gpt3-175b"), gpt2 = model("gpt2"),
                             llama = model("llama2-7b"), small = model("gpt-124m");
  const auto row = [](const char* figure, double published, double ours, const char* unit,
                      const char* note = "") {
    return ExhibitRow{
        .figure = figure, .published = published, .ours = ours, .unit = unit, .note = note};
  };
  return {
      row("GPT-3 175B, a token in a layer, fp16", 49152,
          bytes(gpt3, 1, kHalf) / static_cast<double>(gpt3.n_layer), "bytes"),
      row("GPT-3 175B, a token, fp16", 4.72, bytes(gpt3, 1, kHalf) / kMB, "MB"),
      row("GPT-3 175B, 2048 tokens, fp16", 9.66, bytes(gpt3, 2048, kHalf) / kGB, "GB"),
      row("Llama 2 70B, multi-head over its 8 KV heads", 8,
          multi_head_times(model("llama2-70b"), 8), "times"),
      row("32 heads, multi-head over multi-query", 32, multi_head_times(llama, 1), "times"),
      row("GPT-2, 512 tokens, fp16", 18.9, bytes(gpt2, 512, kHalf) / kMB, "MB"),
      row("gpt-124m, parameters", 123.6,
          static_cast<double>(configs::parameter_count(small, small.vocab_size)) / 1e6, "million"),
      row("gpt-124m, a token, fp32", 72, bytes(small, 1, kSingle) / kKiB, "KiB"),
      row("32 layers of 32 heads of 128, 100,000 tokens, fp16", 105,
          bytes(llama, 100000, kHalf) / kGB, "GB",
          "often quoted as 105 GB in fp16, which is the figure for fp32"),
      row("32 layers of 32 heads of 128, 100,000 tokens, fp32", 105,
          bytes(llama, 100000, kSingle) / kGB, "GB")};
}

}  // namespace

Exhibit presets_exhibit(const Study& study) {
  Exhibit exhibit;
  exhibit.setting =
      "The cache formula, 2 * n_layer * n_kv_head * head_dim * tokens * bytes, on shapes from the "
      "models' papers; headroom plan PRESET prints each with its factors. MB and GB are powers of "
      "1000, KiB of 1024.";
  exhibit.rows = rows(study);
  exhibit.table = {{"preset", "layers", "query heads", "KV heads", "head size", "parameters",
                    "a token, fp16", "its context", "full, fp16"}};
  BarChart chart{.ylabel = "cache per token, fp16 (KiB)", .log_y = true};
  Series series;
  static constexpr std::array<std::pair<const char*, const char*>, 5> kShown = {
      {{"gpt2", "GPT-2"},
       {"gpt-124m", "124M"},
       {"llama2-7b", "7B"},
       {"llama2-70b", "70B"},
       {"gpt3-175b", "175B"}}};
  for (const auto& [name, bar] : kShown) {
    const configs::ModelConfig m = study.preset(name).model;
    const configs::KVTypes half = configs::kv_types_of(kHalf);
    const int64_t token = configs::cache_bytes(m, 1, 1, half);
    exhibit.table.push_back({name, std::to_string(m.n_layer), std::to_string(m.n_head),
                             std::to_string(m.n_kv_head), std::to_string(m.head_dim()),
                             format_count(configs::parameter_count(m, m.vocab_size)),
                             configs::human_bytes(token), format_count(m.block_size),
                             configs::human_bytes(configs::cache_bytes(m, m.block_size, 1, half))});
    series.points.emplace_back(chart.groups.size(), static_cast<double>(token) / kKiB);
    chart.groups.emplace_back(bar);
  }
  chart.series = {series};
  exhibit.chart = bar_chart(chart);
  exhibit.caption =
      "On a logarithmic axis: GPT-2, the 123.6 M model, Llama 2 of 7 and 70 billion, GPT-3.";
  exhibit.why =
      "Nothing but rounding, and one published figure that is wrong: 100,000 tokens at 32 layers "
      "of "
      "32 heads of 128 take 52.4 GB in fp16; 105 GB is what they take in fp32.";
  return exhibit;
}

}  // namespace headroom::experiments
