// kv-head-table and cache-quality: what a sweep's results say of n_kv_head.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "configs/load.h"
#include "experiments/charts.h"
#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"
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

/// Published of 6 layers, 256 wide, 8 query heads: parameters of a layer's attention, and bytes of
/// float32 cache per token and layer.
struct PublishedLayer {
  int64_t n_kv_head;
  double attention_params, cache_bytes;
};
constexpr std::array<PublishedLayer, 4> kPublishedLayers = {
    {{8, 262144, 2048}, {4, 196608, 1024}, {2, 163840, 512}, {1, 147456, 256}}};

/// The layer's published figures, if the sweep's models have the published shape.
std::optional<PublishedLayer> published_layer(const Sweep& sweep, const Row& row) {
  const configs::ModelConfig m = configs::parse_config(sweep.config_yaml, "the sweep").model;
  const auto found = std::ranges::find(kPublishedLayers, row.n_kv_head, &PublishedLayer::n_kv_head);
  const bool same = m.n_embd == 256 && m.n_head == 8 && m.head_dim() == 32 && differs_in_heads(row);
  return same && found != kPublishedLayers.end() ? std::optional(*found) : std::nullopt;
}

/// A difference in nats as one in perplexity: exp(difference) - 1.
double percent_of_perplexity(double nats) { return 100 * std::expm1(nats); }

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// n_kv_head 1 against as many KV heads as query heads, in percent of perplexity.
ExhibitRow folklore_row(const Sweep& sweep, const Summary& summary) {
  ExhibitRow row = exhibit_row("MQA's perplexity above MHA's", 1, {}, "%", "folklore: 1 to 2 %");
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

/// Parameters, bytes and loss of one row of the sweep.
void add_row(Exhibit& exhibit, const Sweep& sweep, const Row& row, const RowSummary& figures) {
  const std::optional<PublishedLayer> layer = published_layer(sweep, row);
  const auto published = [&layer](double PublishedLayer::*figure) {
    return layer ? std::optional((*layer).*figure) : std::nullopt;
  };
  const auto cache = static_cast<double>(row.cache_bytes_per_token);
  exhibit.rows.push_back(exhibit_row(title_of(row) + ", parameters", {},
                                     static_cast<double>(row.params), "parameters", ""));
  exhibit.rows.push_back(exhibit_row(
      title_of(row) + ", attention of a layer", published(&PublishedLayer::attention_params),
      static_cast<double>(row.attention_params_per_layer), "parameters", ""));
  exhibit.rows.push_back(exhibit_row(title_of(row) + ", cache per token and layer",
                                     published(&PublishedLayer::cache_bytes),
                                     cache / static_cast<double>(row.n_layer), "bytes", "f32"));
  exhibit.rows.push_back(
      exhibit_row(title_of(row) + ", cache per token", {}, cache, "bytes", "f32"));
  exhibit.rows.push_back(exhibit_row(title_of(row) + ", best validation loss", figures.published,
                                     finite(figures.best.mean), "nats/token", figures.sentence));
  exhibit.table.push_back({title_of(row), format_count(row.params),
                           format_count(row.attention_params_per_layer),
                           format_bytes(row.cache_bytes_per_token), loss_text(figures)});
}

/// What each row keeps of the largest one's parameters and cache, in percent.
BarChart shares(const Sweep& sweep) {
  BarChart chart{.xlabel = "n_kv_head", .ylabel = "of the largest (%)", .groups = {}, .series = {}};
  for (const Row& row : sweep.rows) chart.groups.push_back(label_of(row));
  const auto add = [&](const char* name, int64_t Row::*figure) {
    const auto most = static_cast<double>(std::ranges::max(sweep.rows, {}, figure).*figure);
    Series series{.name = name, .points = {}};
    for (size_t i = 0; i < sweep.rows.size(); ++i) {
      series.points.emplace_back(i, 100 * static_cast<double>(sweep.rows[i].*figure) / most);
    }
    chart.series.push_back(std::move(series));
  };
  add("parameters", &Row::params);
  add("attention of a layer", &Row::attention_params_per_layer);
  add("cache per token", &Row::cache_bytes_per_token);
  return chart;
}

}  // namespace

Exhibit show_kv_head_table(const Sweep& sweep, const Summary& summary) {
  Exhibit exhibit;
  exhibit.setting = setting_of(sweep, summary);
  exhibit.table = {{"model", "parameters", "attention/layer", "cache/token", "best val loss"}};
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    add_row(exhibit, sweep, sweep.rows[i], summary.rows[i]);
  }
  const BarChart chart = shares(sweep);
  exhibit.chart = bar_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption = "What is left with fewer KV heads: little of the cache, most of the model.";
  exhibit.why =
      "Parameters and bytes are arithmetic. The published losses are of one seed each, and their "
      "corpus, tokenizer and budget were not published: they stand beside ours where the corpus is "
      "Tiny Shakespeare, the model has 8 query heads and all models one shape.";
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
        {title_of(row), format_bytes(row.cache_bytes_per_token), loss_text(figures),
         compared ? format_difference(figures.delta->mean, figures.delta->ci95) : "-",
         compared ? fmt::format("{:+.2f} %", percent_of_perplexity(figures.delta->mean)) : "-",
         figures.sentence});
    if (compared) {
      exhibit.rows.push_back(exhibit_row(title_of(row) + " above multi-head attention", {},
                                         finite(figures.delta->mean), "nats/token",
                                         figures.sentence));
    }
    exhibit.legend.push_back(title_of(row));
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
