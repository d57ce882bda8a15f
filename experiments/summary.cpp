// Means, paired differences and verdicts of a sweep.
#include "experiments/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "experiments/format.h"

namespace headroom::experiments {
namespace {

LossSummary summarize_loss(const std::vector<SeedRun>& runs, double SeedRun::*loss) {
  LossSummary summary;
  for (const SeedRun& run : runs) summary.values.push_back(run.*loss);
  summary.mean = mean(summary.values);
  if (std::isfinite(summary.mean)) summary.sd = sd(summary.values);
  return summary;
}

// A run that diverged after an evaluation has a best loss, but compares with nothing.
double comparable_loss(const SeedRun& run) {
  return std::isfinite(run.final_loss) ? run.best_loss : std::numeric_limits<double>::quiet_NaN();
}

// Best losses of `row` minus those of `reference`, over the seeds that both have finished.
std::optional<PairedDifference> difference_by_seed(const Row& row, const Row& reference) {
  std::vector<double> ours;
  std::vector<double> theirs;
  for (const SeedRun& run : row.runs) {
    const auto match = std::find_if(reference.runs.begin(), reference.runs.end(),
                                    [&](const SeedRun& other) { return other.seed == run.seed; });
    if (match == reference.runs.end()) continue;
    ours.push_back(comparable_loss(run));
    theirs.push_back(comparable_loss(*match));
  }
  if (ours.empty()) return std::nullopt;
  return paired_difference(ours, theirs);
}

Verdict judge(const std::optional<PairedDifference>& delta) {
  if (!delta) return Verdict::no_reference;
  if (!std::isfinite(delta->mean)) return Verdict::diverged;
  if (delta->n < 2) return Verdict::one_seed;
  if (std::abs(delta->mean) <= *delta->ci95) return Verdict::unresolved;
  return delta->mean > 0 ? Verdict::worse : Verdict::better;
}

std::string sentence_of(Verdict verdict, const std::optional<PairedDifference>& delta) {
  switch (verdict) {
    case Verdict::reference:
      return "reference";
    case Verdict::unresolved:
      return fmt::format("no difference resolved at {} seeds", delta->n);
    case Verdict::worse:
    case Verdict::better:
      return fmt::format("{} by {}", verdict == Verdict::worse ? "worse" : "better",
                         format_difference(std::abs(delta->mean), delta->ci95).substr(1));
    case Verdict::one_seed:
      return "one seed: no verdict";
    case Verdict::no_runs:
      return "not trained yet";
    case Verdict::diverged:
      return "a run diverged: no verdict";
    case Verdict::no_reference:
      return "no MHA run: no verdict";
  }
  return {};
}

// Best validation losses of the published study: one seed each, 8 query heads, same shape.
constexpr std::array<std::pair<int64_t, double>, 4> kPublishedLosses{
    {{8, 1.53}, {4, 1.53}, {2, 1.50}, {1, 1.51}}};

// They stand beside Tiny Shakespeare only, and beside a sweep of the same question: 8 query heads
// (the multi-head row has 8 KV heads), models of one shape.
void add_published(const Sweep& sweep, Summary& summary) {
  if (!sweep.tiny_shakespeare || sweep.fair != "same-shape" || !summary.reference) return;
  if (sweep.rows[*summary.reference].n_kv_head != kPublishedLosses.front().first) return;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    for (const auto& [n_kv_head, loss] : kPublishedLosses) {
      if (differs_in_heads(sweep.rows[i]) && sweep.rows[i].n_kv_head == n_kv_head)
        summary.rows[i].published = loss;
    }
  }
}

void add_comparison(const Sweep& sweep, size_t i, Summary& summary) {
  RowSummary& row = summary.rows[i];
  if (!summary.reference) {
    row.verdict = Verdict::no_reference;
  } else {
    row.delta = difference_by_seed(sweep.rows[i], sweep.rows[*summary.reference]);
    row.verdict = i == *summary.reference ? Verdict::reference : judge(row.delta);
  }
  if (sweep.rows[i].runs.empty() && row.verdict != Verdict::reference) {
    row.verdict = Verdict::no_runs;
  }
  row.sentence = sentence_of(row.verdict, row.delta);
  if (row.verdict == Verdict::reference || !row.delta || !row.delta->ci95) return;
  summary.resolvable = std::max(summary.resolvable.value_or(0), *row.delta->ci95);
  summary.seeds_for_goal =
      std::max(summary.seeds_for_goal.value_or(2), seeds_to_resolve(kGoal, *row.delta->sd));
}

}  // namespace

Summary summarize(const Sweep& sweep) {
  Summary summary;
  for (const Row& row : sweep.rows) {
    if (row.attention == "mha") summary.reference = summary.rows.size();
    RowSummary row_summary;
    row_summary.best = summarize_loss(row.runs, &SeedRun::best_loss);
    row_summary.final = summarize_loss(row.runs, &SeedRun::final_loss);
    summary.rows.push_back(std::move(row_summary));
    summary.runs_done += static_cast<int64_t>(row.runs.size());
  }
  summary.runs_planned = static_cast<int64_t>(sweep.rows.size() * sweep.seeds.size());
  for (size_t i = 0; i < sweep.rows.size(); ++i) add_comparison(sweep, i, summary);
  add_published(sweep, summary);
  return summary;
}

}  // namespace headroom::experiments
