// window-sinks: what a window costs and what the first tokens give back.
#include <fmt/format.h>

#include <cmath>

#include "configs/size.h"
#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"
#include "experiments/quality_exhibits.h"

namespace headroom::experiments {
namespace {

/// Positions are drawn in about this many groups: single ones are noise.
constexpr int64_t kGroups = 16;

std::string name_of(const WindowLoss& each) {
  return each.window == 0 ? "full attention"
                          : fmt::format("window {}, {} sink{}", each.window, each.sinks,
                                        each.sinks == 1 ? "" : "s");
}

/// Published on GPT-2 with a window of 256.
std::optional<double> published(const WindowLoss& each) {
  if (each.window == 0) {
    return 3.58;
  }
  return each.sinks == 0   ? std::optional(8.25)
         : each.sinks == 1 ? std::optional(3.86)
         : each.sinks == 4 ? std::optional(3.76)
                           : std::nullopt;
}

/// The difference from full attention, group by group.
Series series_of(const WindowLoss& each, const WindowLoss& full) {
  Series series{.name = name_of(each), .points = {}};
  const auto n = std::ssize(each.loss.by_position);
  const int64_t step = std::max<int64_t>(1, n / kGroups);
  for (int64_t begin = 0; begin + step <= n; begin += step) {
    double sum = 0;
    for (int64_t i = begin; i < begin + step; ++i) {
      const auto at = static_cast<size_t>(i);
      sum += each.loss.by_position[at] - full.loss.by_position[at];
    }
    series.points.emplace_back(static_cast<double>(begin) + 0.5 * static_cast<double>(step - 1),
                               sum / static_cast<double>(step));
  }
  return series;
}

std::vector<std::vector<std::string>> table_of(const std::vector<WindowLoss>& losses,
                                               int64_t token_bytes, int64_t tokens) {
  std::vector<std::vector<std::string>> table = {
      {"cache", "keys seen", "their bytes", "bytes held", "loss", "perplexity", "above full"}};
  for (const WindowLoss& each : losses) {
    const int64_t keys = each.window == 0 ? tokens : std::min(tokens, each.window + each.sinks);
    table.push_back({name_of(each), format_count(keys), format_bytes(keys * token_bytes),
                     format_bytes(each.loss.cache_bytes), fmt::format("{:.4f}", each.loss.mean),
                     fmt::format("{:.3f}", std::exp(each.loss.mean)),
                     fmt::format("{:+.4f}", each.loss.mean - losses.front().loss.mean)});
  }
  return table;
}

/// How much of the window's cost four sinks take back, published and ours.
ExhibitRow share_row(const std::vector<WindowLoss>& losses) {
  const double full = losses[0].loss.mean, none = losses[1].loss.mean;
  ExhibitRow row{.figure = "share of the window's cost that 4 sinks take back",
                 .published = (8.25 - 3.76) / (8.25 - 3.58),
                 .published_to = {},
                 .ours = {},
                 .unit = "",
                 .note = "published: computed from the published losses"};
  if (none - full > 0.001) {
    row.ours = (none - losses.back().loss.mean) / (none - full);
  } else {
    row.note = "ours loses nothing that could be taken back; " + row.note;
  }
  return row;
}

}  // namespace

Exhibit show_window_sinks(const TrainedModel& trained, const std::vector<WindowLoss>& losses) {
  const configs::ModelConfig& model = trained.run.config.model;
  Exhibit exhibit;
  exhibit.setting = setting_of(trained) +
                    " Each passage goes through the cache from its first token on; the loss is "
                    "that of all its tokens.";
  LineChart chart{
      .xlabel = "position in the passage", .ylabel = "nats above full attention", .series = {}};
  bool usual = losses.size() == 4;
  for (const WindowLoss& each : losses) {
    exhibit.rows.push_back({.figure = name_of(each),
                            .published = published(each),
                            .published_to = {},
                            .ours = each.loss.mean,
                            .unit = "nats/token",
                            .note = published(each) ? kOnGpt2 : ""});
    usual = usual && published(each);
    if (each.window != 0) {
      chart.series.push_back(series_of(each, losses.front()));
    }
  }
  if (usual) {
    exhibit.rows.push_back(share_row(losses));
  }
  exhibit.table = table_of(
      losses, configs::cache_bytes(model, 1, 1, {configs::KVType::f32, configs::KVType::f32}),
      trained.held_out.tokens);
  exhibit.chart = line_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption = fmt::format(
      "Loss above full attention by position. Up to position {} all keys are in the "
      "window; bytes held are whole blocks of 64 positions.",
      losses.back().window - 1);
  exhibit.why = model_differs(trained) +
                " GPT-2 has heads that put up to 0.57 of their mass on the first token and break "
                "without it; how much mass ours puts there is exhibit sink-mass. Published with a "
                "window of 256 in a context of 1024, ours is the same quarter.";
  return exhibit;
}

Exhibit window_sinks_exhibit(const Study& study) {
  const TrainedModel trained = load_reference(study);
  return show_window_sinks(
      trained, window_losses(trained.model(), trained.held_out,
                             usual_window(trained.held_out.tokens), {0, 1, 4}, study.progress));
}

}  // namespace headroom::experiments
