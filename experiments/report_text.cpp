// The report's sentences, made from the numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/format.h"
#include "experiments/report.h"

namespace headroom::experiments {
namespace {

// "4", "4 and 2", "4, 2 and 1".
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::vector<size_t> rows_with(const Summary& summary, Verdict verdict) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < summary.rows.size(); ++i) {
    if (summary.rows[i].verdict == verdict) rows.push_back(i);
  }
  return rows;
}

// "n_kv_head 4 and 2", "n_kv_head 2, mla and window".
std::string names_of(const Sweep& sweep, const std::vector<size_t>& rows) {
  std::vector<std::string> heads;
  std::vector<std::string> others;
  for (const size_t i : rows) {
    (differs_in_heads(sweep.rows[i]) ? heads : others).push_back(label_of(sweep.rows[i]));
  }
  if (!heads.empty()) others.insert(others.begin(), "n_kv_head " + listed(heads));
  return listed(others);
}

std::string heads_in_words(int64_t heads) {
  return fmt::format("{} key/value head{}", heads, heads == 1 ? "" : "s");
}

std::string cache_sentence(const Sweep& sweep) {
  std::vector<Row> rows;
  std::copy_if(sweep.rows.begin(), sweep.rows.end(), std::back_inserter(rows), differs_in_heads);
  if (rows.empty()) return "The sweep holds no model of another n_kv_head.";
  const auto [fewest, most] =
      std::minmax_element(rows.begin(), rows.end(),
                          [](const Row& a, const Row& b) { return a.n_kv_head < b.n_kv_head; });
  const int64_t low = fewest->cache_bytes_per_token;
  const int64_t high = most->cache_bytes_per_token;
  if (low == high) {
    return fmt::format(
        "Every model caches {} per token: the one with {} spends it on {} layers, the one with {} "
        "on {}.",
        format_bytes(high), heads_in_words(most->n_kv_head), most->n_layer,
        heads_in_words(fewest->n_kv_head), fewest->n_layer);
  }
  return fmt::format(
      "With {} instead of {} the cache takes {} per token instead of {}, {:.3g} times less{}.",
      heads_in_words(fewest->n_kv_head), most->n_kv_head, format_bytes(low), format_bytes(high),
      static_cast<double>(high) / static_cast<double>(low),
      sweep.fair == "same-params" ? ", and the parameters saved go to the MLP" : "");
}

std::string loss_range(const Summary& summary) {
  double low = INFINITY;
  double high = -INFINITY;
  for (const RowSummary& row : summary.rows) {
    if (!std::isfinite(row.best.mean)) continue;
    low = std::min(low, row.best.mean);
    high = std::max(high, row.best.mean);
  }
  if (low > high) return {};
  if (low == high)
    return fmt::format("the best validation loss is {} nats per token", format_loss(low));
  return fmt::format("the best validation losses lie between {} and {} nats per token",
                     format_loss(low), format_loss(high));
}

std::string loss_sentence(const Sweep& sweep, const Summary& summary) {
  std::vector<std::string> parts;
  for (const Verdict verdict : {Verdict::worse, Verdict::better}) {
    for (const size_t i : rows_with(summary, verdict)) {
      parts.push_back(fmt::format("{} is {}", title_of(sweep.rows[i]), summary.rows[i].sentence));
    }
  }
  std::string text = listed(parts);
  const std::vector<size_t> unresolved = rows_with(summary, Verdict::unresolved);
  if (!unresolved.empty()) {
    if (!text.empty()) text += ", while ";
    text += fmt::format("{} {} no difference that these seeds resolve", names_of(sweep, unresolved),
                        unresolved.size() == 1 ? "shows" : "show");
  }
  if (!text.empty()) {
    const RowSummary& reference = summary.rows[*summary.reference];
    return fmt::format("Against multi-head attention's best validation loss of {}, {}.",
                       format_loss(reference.best.mean), text);
  }
  std::string range = loss_range(summary);
  if (range.empty()) return "No run has a validation loss yet.";
  range.front() = 'T';
  if (!rows_with(summary, Verdict::one_seed).empty()) {
    return range + ", but one seed can't tell an effect from chance: no verdict.";
  }
  if (summary.reference && !summary.rows[*summary.reference].best.values.empty()) {
    return range + "; there is no other run to compare with multi-head attention's.";
  }
  return range + "; there is no multi-head run to compare with.";
}

}  // namespace

std::string finding(const Sweep& sweep, const Summary& summary) {
  if (sweep.rows.empty()) return "The sweep holds no model.";
  return cache_sentence(sweep) + " " + loss_sentence(sweep, summary);
}

std::string statistics_in_words(const Summary& summary) {
  if (!summary.resolvable) {
    return "A difference is paired by seed and needs at least two seeds for an interval. With "
           "fewer the "
           "table shows losses without a spread, and no verdict.";
  }
  return fmt::format(
      "Each difference is the mean over seeds of a row's best loss minus multi-head attention's "
      "with the same "
      "seed; its interval is Student's t with n − 1 degrees of freedom, not corrected for "
      "comparing several "
      "rows, and the difference is resolved when the interval leaves out zero. The widest interval "
      "reaches {} "
      "to either side, so a difference larger than that would be resolved in every row; at the "
      "spread seen here "
      "{} seeds would resolve {}.",
      format_half_width(*summary.resolvable), *summary.seeds_for_goal, kGoal);
}

}  // namespace headroom::experiments
