// kv-head-table and cache-quality: what a sweep's results say of n_kv_head.
#include <fmt/format.h>

#include <cmath>

#include "experiments/charts.h"
#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/report.h"
#include "experiments/results_file.h"
#include "experiments/sweep_exhibits.h"

namespace headroom::experiments {
namespace {

std::string setting_of(const Sweep& sweep, const Summary& summary) {
  return fmt::format(
      "{} runs of the sweep on {} ({}), {}: exact validation loss, mean of the best "
      "of each seed.",
      summary.runs_done, sweep.corpus, sweep.tokenizer, sweep.fair);
}

std::string loss_text(const RowSummary& row) {
  return row.best.values.empty() ? "-" : format_loss(row.best.mean, row.best.sd);
}

/// A difference in nats as one in perplexity: exp(difference) - 1.
double percent_of_perplexity(double nats) { return 100 * std::expm1(nats); }

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

ExhibitRow row_of(std::string figure, std::optional<double> published, std::optional<double> ours,
                  std::string unit, std::string note) {
  return {.figure = std::move(figure),
          .published = published,
          .published_to = {},
          .ours = ours,
          .unit = std::move(unit),
          .note = std::move(note)};
}

/// n_kv_head 1 against as many KV heads as query heads, in percent of perplexity.
ExhibitRow folklore_row(const Sweep& sweep, const Summary& summary) {
  ExhibitRow row = row_of("MQA's perplexity above MHA's", 1, {}, "%", "folklore: 1 to 2 %");
  row.published_to = 2;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const std::optional<PairedDifference>& delta = summary.rows[i].delta;
    if (sweep.rows[i].attention != "mqa" || !delta || !std::isfinite(delta->mean)) {
      continue;
    }
    row.ours = percent_of_perplexity(delta->mean);
    row.note += delta->ci95 ? fmt::format("; 95 %: {:+.1f} to {:+.1f} %",
                                          percent_of_perplexity(delta->mean - *delta->ci95),
                                          percent_of_perplexity(delta->mean + *delta->ci95))
                            : "; one seed, no interval";
  }
  if (!row.ours) {
    row.note += "; the sweep has no finished pair of n_kv_head 1 and multi-head attention";
  }
  return row;
}

}  // namespace

Exhibit show_kv_head_table(const Sweep& sweep, const Summary& summary) {
  Exhibit exhibit;
  exhibit.setting = setting_of(sweep, summary);
  exhibit.table = {
      {"model", "n_kv_head", "parameters", "attention/layer", "cache/token", "best val loss"}};
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const Row& row = sweep.rows[i];
    exhibit.table.push_back({row.name, fmt::format("{}", row.n_kv_head), format_count(row.params),
                             format_count(row.attention_params_per_layer),
                             format_bytes(row.cache_bytes_per_token), loss_text(summary.rows[i])});
    exhibit.rows.push_back(
        row_of(row.name + ", parameters", {}, static_cast<double>(row.params), "parameters", ""));
    exhibit.rows.push_back(row_of(row.name + ", cache per token", {},
                                  static_cast<double>(row.cache_bytes_per_token), "bytes", ""));
    exhibit.rows.push_back(row_of(row.name + ", best validation loss", summary.rows[i].published,
                                  finite(summary.rows[i].best.mean), "nats/token",
                                  summary.rows[i].sentence));
  }
  exhibit.why =
      "The published losses are of one seed each, and their corpus, tokenizer and budget were not "
      "published: they stand beside ours where the corpus is Tiny Shakespeare, the model has 8 "
      "query heads and all models one shape.";
  return exhibit;
}

Exhibit show_cache_quality(const Sweep& sweep, const Summary& summary) {
  Exhibit exhibit;
  exhibit.setting = setting_of(sweep, summary);
  exhibit.table = {
      {"model", "cache/token", "best val loss", "above MHA", "of perplexity", "verdict"}};
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const Row& row = sweep.rows[i];
    const RowSummary& figures = summary.rows[i];
    const bool compared = figures.delta && i != summary.reference;
    exhibit.table.push_back(
        {row.name, format_bytes(row.cache_bytes_per_token), loss_text(figures),
         compared ? format_difference(figures.delta->mean, figures.delta->ci95) : "-",
         compared ? fmt::format("{:+.2f} %", percent_of_perplexity(figures.delta->mean)) : "-",
         figures.sentence});
    if (compared) {
      exhibit.rows.push_back(row_of(row.name + " above multi-head attention", {},
                                    finite(figures.delta->mean), "nats/token", figures.sentence));
    }
    exhibit.legend.push_back(row.name);
  }
  exhibit.rows.push_back(folklore_row(sweep, summary));
  exhibit.chart = cache_chart(sweep, summary);
  exhibit.caption = "Cache per token against best validation loss, means of the seeds.";
  exhibit.why = statistics_in_words(summary) +
                " The folklore is of models a thousand times larger and names no corpus: at this "
                "size the interval says whether a difference of 1 to 2 % could be seen at all.";
  return exhibit;
}

Exhibit kv_head_table_exhibit(const Study& study) {
  const Sweep sweep = read_results(study.sweep);
  return show_kv_head_table(sweep, summarize(sweep));
}

Exhibit cache_quality_exhibit(const Study& study) {
  const Sweep sweep = read_results(study.sweep);
  return show_cache_quality(sweep, summarize(sweep));
}

}  // namespace headroom::experiments
