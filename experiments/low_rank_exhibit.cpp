// low-rank: loss against the numbers kept per token and layer, and what they cost the query.
#include <fmt/format.h>

#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"
#include "experiments/quality_exhibits.h"

namespace headroom::experiments {
namespace {

/// Published on GPT-2, whose layers keep 1536 numbers of a token.
constexpr int64_t kPublishedWidth = 1536;
std::optional<double> published(int64_t rank) {
  return rank == 256 ? std::optional(3.49) : rank == 128 ? std::optional(3.66) : std::nullopt;
}

/// The published rank that keeps the same share of the numbers as `rank` of `width`, if there is
/// one.
std::optional<int64_t> counterpart(int64_t rank, int64_t width) {
  for (const int64_t theirs : {256, 128}) {
    if (rank == width / (kPublishedWidth / theirs)) {
      return theirs;
    }
  }
  return std::nullopt;
}

std::vector<std::vector<std::string>> table_of(const configs::ModelConfig& model,
                                               const LowRank& result) {
  const RankCost full = rank_cost(model, result.width);
  std::vector<std::vector<std::string>> table = {
      {"rank", "energy kept", "loss", "above full", "bytes/token", "basis", "FLOP/key rebuilt",
       "FLOP/key absorbed"},
      {fmt::format("all {}", result.width), "", fmt::format("{:.4f}", result.full_loss), "",
       format_bytes(full.cache_bytes), "none", format_count(full.flop_full),
       format_count(full.flop_full)}};
  for (const RankLoss& each : result.ranks) {
    const RankCost cost = rank_cost(model, each.rank);
    table.push_back({fmt::format("{}", each.rank), fmt::format("{:.2f} %", 100 * each.energy),
                     fmt::format("{:.4f}", each.loss),
                     fmt::format("{:+.4f}", each.loss - result.full_loss),
                     format_bytes(cost.cache_bytes), format_bytes(cost.basis_bytes),
                     format_count(cost.flop_rebuilt), format_count(cost.flop_absorbed)});
  }
  return table;
}

std::string query_side(const configs::ModelConfig& model) {
  return fmt::format(
      " Without the query's side, rank r of W = {} keeps r / W of the bytes. With it: a pass also "
      "reads the basis, W * r numbers per layer, and attention pays either for rebuilding every "
      "cached key and value, 2 r W FLOP each, or for heads as wide as r instead of {} (4 * n_head "
      "* r FLOP per key). The second way {}",
      2 * model.kv_dim(), model.head_dim(),
      model.position == configs::Position::rope
          ? "needs positions that don't turn keys, and this model's rope does: here it is only a "
            "formula. Latent attention (attention: mla) keeps a few rotated numbers apart for that "
            "reason."
          : "is open to this model, whose positions don't turn keys.");
}

}  // namespace

Exhibit show_low_rank(const TrainedModel& trained, const LowRank& result) {
  const configs::ModelConfig& model = trained.run.config.model;
  Exhibit exhibit;
  exhibit.setting =
      setting_of(trained) +
      fmt::format(
          " Per layer, keys before rotation and values side by side ({} numbers) are "
          "projected on the first r eigenvectors of their second moment, fitted on {} "
          "passages of training text.",
          result.width, trained.training.count());
  exhibit.rows = {{.figure = "untruncated",
                   .published = {},
                   .published_to = {},
                   .ours = result.full_loss,
                   .unit = "nats/token",
                   .note = ""}};
  Series losses{.name = "truncated", .points = {}}, full{.name = "untruncated", .points = {}};
  std::vector<double> tics;
  for (const RankLoss& each : result.ranks) {
    const std::optional<int64_t> theirs = counterpart(each.rank, result.width);
    if (theirs) {
      exhibit.rows.push_back(
          {.figure = fmt::format("rank {} of {}", *theirs, kPublishedWidth),
           .published = published(*theirs),
           .published_to = {},
           .ours = each.loss,
           .unit = "nats/token",
           .note = fmt::format("{}; ours is rank {} of {}", kOnGpt2, each.rank, result.width)});
    }
    losses.points.emplace_back(each.rank, each.loss);
    full.points.emplace_back(each.rank, result.full_loss);
    tics.push_back(static_cast<double>(each.rank));
  }
  exhibit.table = table_of(model, result);
  const LineChart chart{.xlabel = "numbers kept per token and layer",
                        .ylabel = "loss (nats/token)",
                        .series = {losses, full},
                        .log_x = true,
                        .xtics = tics};
  exhibit.chart = line_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption = "Held-out loss against the rank that every layer is truncated to.";
  exhibit.why = model_differs(trained) + query_side(model);
  return exhibit;
}

Exhibit low_rank_exhibit(const Study& study) {
  const TrainedModel trained = load_reference(study);
  const int64_t width = 2 * trained.run.config.model.kv_dim();
  return show_low_rank(trained, low_rank(trained.model(), trained.training, trained.held_out,
                                         usual_ranks(width), study.progress));
}

}  // namespace headroom::experiments
