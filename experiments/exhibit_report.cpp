// Puts the page together. Every text passes through escaped().
#include "experiments/exhibit_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/chart_style.h"
#include "experiments/format.h"
#include "experiments/gnuplot.h"
#include "experiments/html.h"
#include "tensor/check.h"

namespace headroom::experiments {
namespace {

/// More figures than this, none of them published, are folded away: the picture and the table below
/// it say the same.
constexpr size_t kMostUnpublished = 12;

std::string figures_table(const Exhibit& exhibit) {
  if (exhibit.rows.empty()) return {};
  std::vector<std::vector<Cell>> rows;
  for (const ExhibitRow& row : exhibit.rows) {
    rows.push_back({{"figure", "", escaped(row.figure), "words"},
                    {"published", "", escaped(published_text(row)), "number"},
                    {"here", "", escaped(ours_text(row)), "number"},
                    {"note", "", escaped(note_text(row)), "words"}});
  }
  const std::string table = html_table("cards figures", rows);
  const bool published = std::ranges::any_of(
      exhibit.rows, [](const ExhibitRow& row) { return row.published.has_value(); });
  return published || rows.size() <= kMostUnpublished
             ? table
             : fmt::format("<details><summary>All {} figures</summary>\n{}</details>\n",
                           rows.size(), table);
}

/// Whether the table needs the whole width of a wide screen: half of it holds some 56 characters.
bool is_wide(const std::vector<std::vector<std::string>>& table) {
  size_t all = 0;
  for (size_t column = 0; column < table.front().size(); ++column) {
    size_t most = 0;
    for (size_t i = 1; i < table.size(); ++i) {
      if (column < table[i].size()) most = std::max(most, table[i][column].size());
    }
    all += std::max(most, table.front()[column].size() / 2) + 2;
  }
  return all > 56;
}

std::string details_table(const Exhibit& exhibit) {
  if (exhibit.table.size() < 2) return {};
  const std::vector<std::string>& head = exhibit.table.front();
  std::vector<std::vector<Cell>> rows;
  for (size_t i = 1; i < exhibit.table.size(); ++i) {
    std::vector<Cell> cells;
    for (size_t column = 0; column < head.size(); ++column) {
      const std::vector<std::string>& row = exhibit.table[i];
      cells.push_back({head[column], "", column < row.size() ? escaped(row[column]) : "",
                       column == 0 ? "" : "number"});
    }
    rows.push_back(std::move(cells));
  }
  return "<div class=\"scroll\">" + html_table("narrow", rows) + "</div>\n";
}

std::string legend(const Exhibit& exhibit) {
  std::string items;
  for (size_t i = 0; i < exhibit.legend.size(); ++i) {
    const ChartLook& look = chart_look(i);
    items += fmt::format("<span><span class=\"mark\" style=\"color: {}\">{}</span>{}</span>",
                         look.color, look.mark, escaped(exhibit.legend[i]));
  }
  return items.empty() ? "" : "<p class=\"legend\">" + items + "</p>\n";
}

/// The drawing, or a note in its place; once a drawing failed no other is tried.
std::string picture(const Exhibit& exhibit, std::string& warning) {
  if (exhibit.chart.empty()) return {};
  std::string drawing;
  if (warning.empty()) {
    try {
      drawing = draw(exhibit.chart, exhibit.id + "-chart");
    } catch (const Error& error) {
      warning = error.what();
    }
  }
  if (!warning.empty()) {
    drawing = fmt::format("<p class=\"warning\">No chart. {}</p>", escaped(warning));
  }
  return fmt::format("<figure>{}{}\n<figcaption>{}</figcaption></figure>\n", legend(exhibit),
                     drawing, escaped(exhibit.caption));
}

std::string paragraph(const char* kind, const std::string& text) {
  return text.empty() ? "" : fmt::format("<p class=\"{}\">{}</p>\n", kind, escaped(text));
}

std::string why(const Exhibit& exhibit) {
  return exhibit.why.empty()
             ? ""
             : fmt::format("<p class=\"why\"><strong>Why they differ.</strong> {}</p>\n",
                           escaped(exhibit.why));
}

std::string section(const Exhibit& exhibit, std::string& warning) {
  const std::string chart = picture(exhibit, warning), details = details_table(exhibit);
  const std::string beside = chart + details;
  const char* const wide = exhibit.table.size() > 1 && is_wide(exhibit.table) ? " stacked" : "";
  return fmt::format(
      "<section id=\"{}\"><h2>{} <code>{}</code></h2>\n{}{}{}{}</section>\n", escaped(exhibit.id),
      escaped(exhibit.title), escaped(exhibit.id), paragraph("note", exhibit.setting),
      figures_table(exhibit), why(exhibit),
      beside.empty() ? "" : fmt::format("<div class=\"panels{}\">\n{}</div>\n", wide, beside));
}

std::string contents(const Reproduction& all) {
  std::string items;
  for (const DoneExhibit& done : all.exhibits) {
    items += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", escaped(done.exhibit.id),
                         escaped(done.exhibit.title));
  }
  return "<nav><ol>\n" + items + "</ol></nav>\n";
}

std::string summary(const Reproduction& all) {
  int64_t measured = 0, missing = 0;
  for (const DoneExhibit& done : all.exhibits) {
    for (const ExhibitRow& row : done.exhibit.rows) ++(row.ours ? measured : missing);
  }
  const std::string rest =
      missing == 0 ? "" : fmt::format("; {} could not be, and say why", missing);
  return fmt::format("{} exhibits, {} figures computed or measured on this machine{}.",
                     all.exhibits.size(), measured, rest);
}

std::string setup(const Reproduction& all) {
  double seconds = 0;
  for (const DoneExhibit& done : all.exhibits) seconds += done.seconds;
  std::string list;
  const auto add = [&](const char* term, const std::string& value) {
    if (!value.empty()) list += fmt::format("<dt>{}</dt><dd>{}</dd>\n", term, escaped(value));
  };
  add("Machine", fmt::format("{}, {} cores", all.machine.cpu, all.machine.cores));
  add("Threads", std::to_string(all.machine.threads));
  add("Extent", all.quick ? "quick: one seed, small models, fewer repetitions" : "full");
  add("Trained models",
      all.sweep + (all.own_sweep ? ", a sweep of configs/gqa-quick.yaml run for this study" : ""));
  add("Time", format_seconds(seconds) + (all.sweep.empty() ? "" : ", the sweep not counted"));
  return "<section><h2>Set-up</h2>\n<dl>\n" + list + "</dl></section>\n";
}

}  // namespace

Report make_exhibit_report(const Reproduction& all) {
  Report report;
  const std::string title = "The KV cache: published figures and ours";
  std::string body = fmt::format("<h1>{}</h1>\n", title);
  body += paragraph("about", fmt::format("{}, {} threads{}", all.machine.cpu, all.machine.threads,
                                         all.quick ? "; quick" : ""));
  if (!all.finished) {
    body += paragraph("warning", fmt::format("Unfinished: {} of {} exhibits are here.",
                                             all.exhibits.size(), all.planned));
  }
  body += paragraph("finding", summary(all)) + contents(all);
  for (const DoneExhibit& done : all.exhibits) body += section(done.exhibit, report.warning);
  report.html = html_page(title, body + setup(all));
  return report;
}

}  // namespace headroom::experiments
