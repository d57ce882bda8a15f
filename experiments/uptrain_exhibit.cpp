// uptrain: the sweep's multi-head model pooled to each smaller n_kv_head, and trained a little
// more.
#include <fmt/format.h>

#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"
#include "experiments/quality_exhibits.h"
#include "experiments/results_file.h"
#include "experiments/study_observer.h"
#include "experiments/uptrain.h"

namespace headroom::experiments {
namespace {

/// Numbers of KV heads below the multi-head model's that a sweep trained; the fewest in a quick
/// study.
std::vector<int64_t> smaller_heads(const Sweep& sweep, int64_t multi_head, bool quick) {
  std::vector<int64_t> heads;
  for (const Row& row : sweep.rows) {
    if (differs_in_heads(row) && row.n_kv_head < multi_head) heads.push_back(row.n_kv_head);
  }
  std::sort(heads.rbegin(), heads.rend());
  if (quick && heads.size() > 1) heads = {heads.back()};
  return heads;
}

std::filesystem::path run_of(const Study& study, int64_t n_kv_head, uint64_t seed) {
  return study.sweep / fmt::format("kv{}-seed{}", n_kv_head, seed);
}

ExhibitRow loss_row(int64_t heads, const std::string& figure, std::optional<double> loss,
                    std::string note = {}) {
  return exhibit_row(fmt::format("n_kv_head {}, {}", heads, figure), {}, loss, "nats/token",
                     std::move(note));
}

std::string taken_back(const Uptraining& u) {
  const double cost = u.pooled - u.original;
  return cost > 0 ? fmt::format("takes back {:.0f} % of what pooling cost",
                                100 * (u.pooled - u.uptrained) / cost)
                  : "pooling cost nothing";
}

std::string beside_scratch(const Uptraining& u) {
  return u.from_scratch
             ? fmt::format("uptraining ends {:+.4f} from it, after {} % of its steps",
                           u.uptrained - *u.from_scratch, 100 * u.steps / u.original_steps)
             : "the sweep has no such run";
}

}  // namespace

Exhibit show_uptrain(const std::vector<Uptraining>& all) {
  Exhibit exhibit;
  exhibit.table = {{"n_kv_head", "pooled", "uptrained", "from scratch", "multi-head"}};
  BarChart chart{.xlabel = "n_kv_head", .ylabel = "loss (nats/token)", .groups = {}, .series = {}};
  chart.series = {{.name = "pooled"}, {.name = "uptrained"}, {.name = "from scratch"}};
  if (!all.empty()) {
    const Uptraining& first = all.front();
    exhibit.setting = fmt::format(
        "The sweep's model with {} KV heads: groups of heads are replaced by their mean, and the "
        "pooled model is trained for {} steps more ({} % of its {}). Exact validation losses.",
        first.heads_before, first.steps, 100 * first.steps / first.original_steps,
        first.original_steps);
    exhibit.rows.push_back(
        loss_row(first.heads_before, "the model that is pooled", first.original));
  }
  for (const Uptraining& u : all) {
    exhibit.rows.push_back(loss_row(u.heads, "pooled, before uptraining", u.pooled));
    exhibit.rows.push_back(
        loss_row(u.heads, fmt::format("after {} steps", u.steps), u.uptrained, taken_back(u)));
    exhibit.rows.push_back(loss_row(u.heads, "from scratch", u.from_scratch, beside_scratch(u)));
    exhibit.table.push_back(
        {std::to_string(u.heads), format_loss(u.pooled), format_loss(u.uptrained),
         u.from_scratch ? format_loss(*u.from_scratch) : "-", format_loss(u.original)});
    const auto group = static_cast<double>(chart.groups.size());
    chart.groups.push_back(std::to_string(u.heads));
    chart.series[0].points.emplace_back(group, u.pooled);
    chart.series[1].points.emplace_back(group, u.uptrained);
    if (u.from_scratch) chart.series[2].points.emplace_back(group, *u.from_scratch);
  }
  exhibit.chart = bar_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption =
      "Validation loss before and after uptraining, and of models trained with so "
      "few heads from the start.";
  exhibit.why =
      "The published study (arXiv 2305.13245) uptrains T5 checkpoints for 5 % of their steps and "
      "reports task scores, which no loss of a small model can stand beside: nothing is set "
      "against "
      "ours. A few dozen steps mend most of what pooling broke; whether they reach the model from "
      "scratch is what the figures say.";
  return exhibit;
}

Exhibit uptrain_exhibit(const Study& study) {
  const Sweep sweep = read_results(study.sweep);
  const std::optional<size_t> reference = summarize(sweep).reference;
  check(reference && !sweep.rows[*reference].runs.empty(),
        "[uptrain] {}: the sweep has no finished multi-head run to pool", study.sweep.string());
  const Row& whole = sweep.rows[*reference];
  const uint64_t seed = whole.runs.front().seed;
  const std::vector<int64_t> heads = smaller_heads(sweep, whole.n_kv_head, study.quick);
  check(!heads.empty(), "[uptrain] {}: the sweep has no smaller n_kv_head", study.sweep.string());
  std::vector<Uptraining> all;
  for (const int64_t fewer : heads) {
    const auto parts = static_cast<int64_t>(heads.size());
    study.progress(std::ssize(all), parts);
    const int64_t steps = all.empty() ? 0 : all.front().steps;
    StudyObserver observer(study, std::ssize(all) * steps, parts * steps);
    const auto result = uptrain(run_of(study, whole.n_kv_head, seed), fewer,
                                study.folder / "uptrain" / fmt::format("kv{}", fewer),
                                run_of(study, fewer, seed), observer);
    if (!result) throw Interrupted();
    all.push_back(*result);
  }
  return show_uptrain(all);
}

}  // namespace headroom::experiments
