// Puts the page together. Every text that isn't this file's own passes through escaped().
#include "experiments/report.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "experiments/charts.h"
#include "experiments/format.h"
#include "experiments/gnuplot.h"
#include "experiments/html.h"
#include "experiments/table.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

std::string with_minus(std::string text) {
  if (text.starts_with('-')) text.replace(0, 1, "−");
  return text;
}

std::string loss_or_dash(const LossSummary& loss) {
  return loss.values.empty() ? "–" : format_loss(loss.mean, loss.sd);
}

std::string delta_or_dash(const RowSummary& row, bool interval) {
  const bool compared = row.verdict == Verdict::unresolved || row.verdict == Verdict::worse ||
                        row.verdict == Verdict::better || row.verdict == Verdict::one_seed;
  if (!compared) return "–";
  return with_minus(format_difference(row.delta->mean, interval ? row.delta->ci95 : std::nullopt));
}

std::vector<Cell> main_row(const Sweep& sweep, const Summary& summary, size_t i) {
  const Row& row = sweep.rows[i];
  const RowSummary& figures = summary.rows[i];
  const bool several = sweep.seeds.size() > 1;
  const std::string mean_of = (several ? "mean ± sd, " : "") + seeds_in_words(sweep.seeds.size());
  std::vector<Cell> cells{
      {"n_kv_head", "", fmt::format("<span>{}{}</span>", row_mark(i), label_of(row)), ""}};
  if (sweep.fair == "same-params") cells.push_back({"n_ff", "", format_count(row.n_ff), "number"});
  if (sweep.fair == "same-cache")
    cells.push_back({"layers", "", std::to_string(row.n_layer), "number"});
  cells.push_back({"parameters", "", format_count(row.params), "number"});
  cells.push_back({"cache/token", "", format_bytes(row.cache_bytes_per_token), "number"});
  if (sweep.fair != "same-shape")
    cells.push_back({"tokens", "", format_tokens(row.tokens), "number"});
  cells.push_back({"best val loss", mean_of, loss_or_dash(figures.best), "number"});
  cells.push_back({"final val loss", mean_of, loss_or_dash(figures.final), "number"});
  cells.push_back({"Δ vs MHA", several ? "95 % CI" : "", delta_or_dash(figures, true), "number"});
  cells.push_back({"verdict", "", escaped(figures.sentence), "words"});
  return cells;
}

std::string result_section(const Sweep& sweep, const Summary& summary) {
  if (sweep.rows.empty()) return {};
  std::vector<std::vector<Cell>> rows;
  for (size_t i = 0; i < sweep.rows.size(); ++i) rows.push_back(main_row(sweep, summary, i));
  return fmt::format(
      "<section><h2>Result</h2>\n{}<p class=\"note\">Losses are exact over the whole validation "
      "split, in "
      "nats per token. The cache holds keys and values of all layers in {}. {}</p></section>\n",
      html_table("cards", rows), escaped(sweep.cache_dtype), escaped(statistics_in_words(summary)));
}

std::string legend_of(const Sweep& sweep, std::optional<size_t> without) {
  std::string items;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    if (sweep.rows[i].runs.empty() || i == without) continue;
    items += fmt::format("<span>{}{}</span>", row_mark(i), label_of(sweep.rows[i]));
  }
  return "<p class=\"legend\"><span>n_kv_head</span>" + items + "</p>\n";
}

struct Figure {
  std::string id;
  std::string title;
  std::string caption;
  std::string script;
  std::string legend;
};

std::vector<Figure> figures_of(const Sweep& sweep, const Summary& summary) {
  const bool several = sweep.seeds.size() > 1;
  return {{"cache", "Cache against loss",
           several ? "Marks with bars: mean and one standard deviation over seeds; small circles: "
                     "single seeds; dashed line: the mean of multi-head attention (MHA)."
                   : "One seed per mark. Dashed line: multi-head attention (MHA).",
           cache_chart(sweep, summary), ""},
          {"curves", "Loss during training",
           several ? "Lines: means over seeds. Bands: from the lowest to the highest seed."
                   : "One seed per line.",
           curves_chart(sweep), legend_of(sweep, std::nullopt)},
          {"difference", "Difference from MHA during training",
           several ? "Paired by seed at the same step; below zero is better than MHA. Lines: means "
                     "over seeds. Bands: from the lowest to the highest seed."
                   : "One seed per line; below zero is better than MHA.",
           difference_chart(sweep, summary), legend_of(sweep, summary.reference)}};
}

// The drawing, or a note in its place; once a drawing failed no other is tried.
std::string drawing_of(const Figure& figure, std::string& warning) {
  if (warning.empty()) {
    try {
      return draw(figure.script, figure.id);
    } catch (const Error& error) {
      warning = error.what();
    }
  }
  return fmt::format("<p class=\"warning\">No chart. {}</p>", escaped(warning));
}

std::string published_panel(const Sweep& sweep, const Summary& summary) {
  std::vector<std::vector<Cell>> rows;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const RowSummary& figures = summary.rows[i];
    if (!figures.published) continue;
    const double published_delta = *figures.published - *summary.rows[*summary.reference].published;
    const std::string delta =
        i == *summary.reference ? "–" : with_minus(fmt::format("{:+.2f}", published_delta));
    const std::string here = figures.best.values.empty() ? "–" : format_loss(figures.best.mean);
    rows.push_back({{"n_kv_head", "", row_mark(i) + std::to_string(sweep.rows[i].n_kv_head), ""},
                    {"published", "best loss", fmt::format("{:.2f}", *figures.published), "number"},
                    {"published", "Δ vs MHA", delta, "number"},
                    {"here", "best loss", here, "number"},
                    {"here", "Δ vs MHA", delta_or_dash(figures, false), "number"}});
  }
  if (rows.empty()) return {};
  return "<section><h2>Beside the published figures</h2>\n" + html_table("narrow", rows) +
         "<p class=\"note\">The published losses come from one seed each; their corpus, tokenizer "
         "and training budget are not published. Compare the pattern, not the level.</p>"
         "</section>\n";
}

std::string panels(const Sweep& sweep, const Summary& summary, std::string& warning) {
  std::string html;
  for (const Figure& figure : figures_of(sweep, summary)) {
    if (figure.script.empty()) continue;
    html += fmt::format(
        "<figure id=\"{}\"><h2>{}</h2>\n{}{}\n<figcaption>{}</figcaption></figure>\n", figure.id,
        figure.title, figure.legend, drawing_of(figure, warning), figure.caption);
  }
  return "<div class=\"panels\">\n" + html + published_panel(sweep, summary) + "</div>\n";
}

std::string samples_section(const Sweep& sweep) {
  std::string html;
  for (const Row& row : sweep.rows) {
    if (row.sample.empty()) continue;
    html +=
        fmt::format("<div><h3>{}</h3><pre>{}</pre></div>\n", title_of(row), escaped(row.sample));
  }
  if (html.empty()) return {};
  return fmt::format(
      "<section><h2>A text sample from each model</h2>\n<p class=\"note\">{}</p>\n<div "
      "class=\"samples\">\n{}</div>"
      "</section>\n",
      escaped(sweep.sample_note), html);
}

std::string setup_section(const Sweep& sweep, const Summary& summary) {
  std::string list;
  const auto add = [&](const char* term, std::string_view value) {
    if (!value.empty()) list += fmt::format("<dt>{}</dt><dd>{}</dd>\n", term, escaped(value));
  };
  std::string seeds;
  for (const uint64_t seed : sweep.seeds)
    seeds += (seeds.empty() ? "" : ", ") + std::to_string(seed);
  const Machine& machine = sweep.machine;
  add("Corpus", fmt::format("{}, tokenizer {}", sweep.corpus, sweep.tokenizer));
  add("Fairness", sweep.fair);
  add("Seeds", seeds);
  add("Runs", fmt::format("{} of {}", summary.runs_done, summary.runs_planned));
  add("Machine", fmt::format("{}, {} cores", machine.cpu, machine.cores));
  add("Threads", std::to_string(machine.threads));
  add("Device", machine.device);
  add("Precision", fmt::format("{} in training, fp32 in evaluation", machine.precision));
  add("Started", sweep.started);
  add("Time", format_seconds(sweep.seconds));
  return fmt::format("<section><h2>Set-up</h2>\n<dl>\n{}</dl>\n<pre>{}</pre></section>\n", list,
                     escaped(sweep.config_yaml));
}

std::string fairness_in_words(const std::string& fair) {
  if (fair == "same-params") return "equal parameters: what fewer heads save goes to the MLP";
  if (fair == "same-cache")
    return "equal cache and equal training FLOP: what fewer heads save goes to layers";
  return "models of one shape that differ in n_kv_head only";
}

}  // namespace

Report make_report(const Sweep& sweep, const Summary& summary) {
  Report report;
  const std::string title = fmt::format("Key/value heads and validation loss: {}", sweep.corpus);
  std::string body = fmt::format(
      "<h1>Key/value heads and validation loss</h1>\n<p class=\"about\">{} ({} tokenizer); {}; {} "
      "per model; <span class=\"whole\">{}</span>.</p>\n",
      escaped(sweep.corpus), escaped(sweep.tokenizer), fairness_in_words(sweep.fair),
      seeds_in_words(sweep.seeds.size()), escaped(sweep.started));
  if (!sweep.finished) {
    body += fmt::format(
        "<p class=\"warning\">Unfinished: {} of {} runs are done. The figures below are of "
        "these.</p>\n",
        summary.runs_done, summary.runs_planned);
  }
  body += fmt::format("<p class=\"finding\">{}</p>\n", escaped(finding(sweep, summary)));
  body += result_section(sweep, summary);
  body += panels(sweep, summary, report.warning);
  body += samples_section(sweep);
  body += setup_section(sweep, summary);
  report.html = html_page(title, body);
  return report;
}

std::string write_report(const std::filesystem::path& folder, const Sweep& sweep,
                         const Summary& summary) {
  Report report = make_report(sweep, summary);
  write_file(folder / "report.html", report.html);
  return std::move(report.warning);
}

}  // namespace headroom::experiments
