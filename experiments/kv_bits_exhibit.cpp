// kv-bits: over the members of a sweep.
#include <fmt/format.h>

#include <algorithm>

#include "experiments/exhibits.h"
#include "experiments/kv_bits.h"
#include "experiments/line_chart.h"
#include "experiments/quality_exhibits.h"
#include "experiments/results_file.h"

namespace headroom::experiments {
namespace {

struct Member {
  std::string row;
  uint64_t seed;
};

/// The finished runs of the rows that differ in n_kv_head alone; of the first seed in a quick
/// study.
std::vector<Member> members(const Study& study) {
  std::vector<Member> all;
  for (const Row& row : read_results(study.sweep).rows) {
    const bool heads_only = row.name == fmt::format("kv{}", row.n_kv_head);
    for (const SeedRun& run : row.runs) {
      if (heads_only && (!study.quick || run.seed == row.runs.front().seed)) {
        all.push_back({row.name, run.seed});
      }
    }
  }
  check(!all.empty(), "[kv-bits] {}: the sweep has no finished run", study.sweep.string());
  return all;
}

/// Adds a model's losses to the mean over the models with its n_kv_head, of which there are
/// `models` already.
void add_to_mean(const std::vector<BitsLoss>& losses, std::vector<BitsLoss>& all, double models) {
  for (const BitsLoss& each : losses) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const BitsLoss& other) {
      return other.n_kv_head == each.n_kv_head && other.types == each.types;
    });
    if (same == all.end()) {
      all.push_back(each);
      continue;
    }
    for (size_t i = 0; i < each.by_passage.size(); ++i) {
      same->by_passage[i] += (each.by_passage[i] - same->by_passage[i]) / (models + 1);
    }
  }
}

/// A line for each pair of types, a column for each n_kv_head.
std::vector<std::vector<std::string>> table_of(const std::vector<BitsLoss>& losses) {
  std::vector<std::vector<std::string>> table = {{"cache"}};
  for (const BitsLoss& each : losses) {
    const std::string name = configs::to_string(each.types);
    const std::string column = fmt::format("n_kv_head {}", each.n_kv_head);
    if (std::ranges::find(table[0], column) == table[0].end()) table[0].push_back(column);
    auto line = std::find_if(table.begin() + 1, table.end(),
                             [&](const auto& other) { return other.front() == name; });
    if (line == table.end()) line = table.insert(table.end(), {name});
    const MeanOverPassages loss = mean_over_passages(each.by_passage);
    line->push_back(fmt::format("{:+.5f} ± {:.5f}", loss.mean, loss.half_width));
  }
  return table;
}

/// A group for each n_kv_head, a bar for each pair of types that loses enough to be seen.
BarChart chart_of(const std::vector<BitsLoss>& losses) {
  BarChart chart{.xlabel = "n_kv_head", .ylabel = "nats above float32", .groups = {}, .series = {}};
  for (const BitsLoss& each : losses) {
    if (each.types.k == configs::KVType::bf16 || each.types.v == configs::KVType::bf16) continue;
    const std::string group = fmt::format("{}", each.n_kv_head);
    if (std::ranges::find(chart.groups, group) == chart.groups.end()) chart.groups.push_back(group);
    const std::string name = configs::to_string(each.types);
    auto series = std::ranges::find(chart.series, name, &Series::name);
    if (series == chart.series.end()) {
      series = chart.series.insert(chart.series.end(), {.name = name, .points = {}});
    }
    series->points.emplace_back(static_cast<double>(chart.groups.size() - 1),
                                mean_over_passages(each.by_passage).mean);
  }
  return chart;
}

}  // namespace

Exhibit show_kv_bits(const TrainedModel& last, const std::vector<BitsLoss>& losses) {
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "The members of the sweep, trained in float32 or bf16 and not for their caches; {} passages "
      "of {} tokens of {}'s validation text. Nats per token above a float32 cache of the same "
      "model, ± 95 % over passages; int8 and int4 have a scale for each 32 numbers of a head.",
      last.held_out.count(), last.held_out.tokens, last.corpus);
  for (const BitsLoss& each : losses) {
    const MeanOverPassages loss = mean_over_passages(each.by_passage);
    exhibit.rows.push_back({.figure = bits_figure(each.n_kv_head, each.types),
                            .published = {},
                            .published_to = {},
                            .ours = loss.mean,
                            .unit = "nats/token",
                            .note = fmt::format("± {:.5f}", loss.half_width)});
  }
  exhibit.table = table_of(losses);
  const BarChart chart = chart_of(losses);
  exhibit.chart = bar_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption = "What caches of 8 and 4 bits lose, by n_kv_head.";
  exhibit.why = bits_answer(losses) + " Nothing was published to stand beside it.";
  return exhibit;
}

Exhibit kv_bits_exhibit(const Study& study) {
  const std::vector<Member> all = members(study);
  std::vector<BitsLoss> losses;
  TrainedModel trained;
  std::string row;
  double models = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    models = all[i].row == row ? models + 1 : 0;
    row = all[i].row;
    trained = load_member(study, row, all[i].seed);
    const auto part = [&](int64_t done, int64_t parts) {
      study.progress(static_cast<int64_t>(i) * parts + done, std::ssize(all) * parts);
    };
    add_to_mean(bits_losses(trained.model(), trained.held_out, part), losses, models);
  }
  return show_kv_bits(trained, losses);
}

}  // namespace headroom::experiments
