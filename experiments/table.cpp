// The sweep's table as text.
#include "experiments/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "experiments/format.h"

namespace headroom::experiments {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kGap = 2;

struct Column {
  std::vector<std::string> header;  // one entry per line
  bool right = false;
  std::vector<std::string> cells = {};
};

// Breaks at spaces, but keeps "a ± b" together.
std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    while (text.substr(end).starts_with(" ±") || text.substr(0, end).ends_with("±")) {
      end = std::min(text.find(' ', end + 1), text.size());
      if (end == text.size()) break;
    }
    const std::string_view piece = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::string& line = lines.back();
    if (line.empty()) {
      line = piece;
    } else if (display_width(line) + 1 + display_width(piece) <= width) {
      line.append(" ").append(piece);
    } else {
      lines.emplace_back(piece);
    }
  }
  return lines;
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string fill(width - std::min(width, display_width(text)), ' ');
  return right ? fill + text : text + fill;
}

void append_line(const std::vector<std::string>& cells, const std::vector<Column>& columns,
                 const std::vector<size_t>& widths, std::string& out) {
  std::string line;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (c > 0) line.append(kGap, ' ');
    line += padded(cells[c], widths[c], columns[c].right);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

// Lays the columns out; the last one's cells are wrapped into what is left of kWidth.
std::string layout(const std::vector<Column>& columns) {
  std::vector<size_t> widths;
  size_t header_lines = 0;
  size_t used = 0;
  for (const Column& column : columns) {
    size_t width = 0;
    for (const std::string& line : column.header) width = std::max(width, display_width(line));
    for (const std::string& cell : column.cells) width = std::max(width, display_width(cell));
    if (&column == &columns.back()) {
      width = std::min(width, std::max<size_t>(kWidth - std::min(kWidth, used), 16));
    }
    header_lines = std::max(header_lines, column.header.size());
    widths.push_back(width);
    used += width + kGap;
  }
  std::string out;
  std::vector<std::string> line(columns.size());
  for (size_t h = 0; h < header_lines; ++h) {
    for (size_t c = 0; c < columns.size(); ++c) {
      line[c] = h < columns[c].header.size() ? columns[c].header[h] : "";
    }
    append_line(line, columns, widths, out);
  }
  for (size_t r = 0; r < columns.front().cells.size(); ++r) {
    const std::vector<std::string> last = wrap(columns.back().cells[r], widths.back());
    for (size_t l = 0; l < last.size(); ++l) {
      for (size_t c = 0; c < columns.size(); ++c) line[c] = l == 0 ? columns[c].cells[r] : "";
      line.back() = last[l];
      append_line(line, columns, widths, out);
    }
  }
  return out;
}

std::string loss_cell(const LossSummary& loss) {
  return loss.values.empty() ? "-" : format_loss(loss.mean, loss.sd);
}

std::string delta_cell(const RowSummary& row) {
  if (row.verdict == Verdict::reference || !row.delta) return "-";
  if (row.verdict == Verdict::diverged) return "-";
  return format_difference(row.delta->mean, row.delta->ci95);
}

std::vector<std::string> loss_header(std::string_view name, size_t seeds) {
  if (seeds == 1) return {std::string(name), "1 seed"};
  return {std::string(name), "mean ± sd,", seeds_in_words(seeds)};
}

std::string main_table(const Sweep& sweep, const Summary& summary) {
  const bool same_shape = sweep.fair == "same-shape";
  const bool same_cache = sweep.fair == "same-cache";
  Column heads{{"n_kv_head"}};
  Column size{{same_cache ? "layers" : "n_ff"}, true};
  Column params{{"parameters"}, true};
  Column cache{{"cache/token"}, true};
  Column tokens{{"tokens"}, true};
  Column loss{loss_header("best val loss", sweep.seeds.size())};
  Column delta{{"Δ vs MHA", "95 % CI"}};
  Column verdict{{"verdict"}};
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const Row& row = sweep.rows[i];
    heads.cells.push_back(label_of(row));
    size.cells.push_back(std::to_string(same_cache ? row.n_layer : row.n_ff));
    params.cells.push_back(format_count(row.params));
    cache.cells.push_back(format_bytes(row.cache_bytes_per_token));
    tokens.cells.push_back(format_tokens(row.tokens));
    loss.cells.push_back(loss_cell(summary.rows[i].best));
    delta.cells.push_back(delta_cell(summary.rows[i]));
    verdict.cells.push_back(summary.rows[i].sentence);
  }
  if (same_shape) return layout({heads, params, cache, loss, delta, verdict});
  return layout({heads, size, params, cache, tokens, loss, delta, verdict});
}

std::string second_table(const Sweep& sweep, const Summary& summary) {
  Column heads{{"n_kv_head"}};
  Column best{{"best val loss"}};
  Column final{{"final val loss"}};
  Column p{{"p (Δ = 0)"}, true};
  Column time{{"time per run"}, true};
  Column published{{"published best loss *"}, true};
  bool any_published = false;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const RowSummary& row = summary.rows[i];
    double seconds = 0;
    for (const SeedRun& run : sweep.rows[i].runs) seconds += run.seconds;
    const bool has_p = row.verdict != Verdict::reference && row.delta && row.delta->p;
    heads.cells.push_back(label_of(sweep.rows[i]));
    best.cells.push_back(loss_cell(row.best));
    final.cells.push_back(loss_cell(row.final));
    p.cells.push_back(has_p ? format_p(*row.delta->p) : "-");
    time.cells.push_back(
        row.best.values.empty()
            ? "-"
            : format_seconds(seconds / static_cast<double>(row.best.values.size())));
    published.cells.push_back(row.published ? fmt::format("{:.2f}", *row.published) : "-");
    any_published |= row.published.has_value();
  }
  if (!any_published) return layout({heads, best, final, p, time});
  return layout({heads, best, final, p, time, published}) +
         "* one seed each; corpus, tokenizer and budget are not published: compare the pattern, "
         "not the "
         "level.\n";
}

}  // namespace

std::string seeds_in_words(size_t seeds) {
  return fmt::format("{} seed{}", seeds, seeds == 1 ? "" : "s");
}

std::string sweep_table(const Sweep& sweep, const Summary& summary) {
  std::string out;
  if (!sweep.finished) {
    out += fmt::format("Unfinished: {} of {} runs are done.\n\n", summary.runs_done,
                       summary.runs_planned);
  }
  out += main_table(sweep, summary) + "\n" + second_table(sweep, summary) + "\n";
  if (summary.resolvable) {
    out += fmt::format(
        "Smallest difference these seeds resolve: {} (half width of the widest 95 % "
        "interval)\n",
        format_half_width(*summary.resolvable));
    out += fmt::format("Seeds that would resolve {}: {}\n", kGoal, *summary.seeds_for_goal);
  } else {
    out += "Smallest difference these seeds resolve: unknown (needs two seeds or more)\n";
  }
  out += fmt::format("Corpus: {} (tokenizer: {}); losses in nats per token; fairness: {}\n",
                     sweep.corpus, sweep.tokenizer, sweep.fair);
  return out;
}

}  // namespace headroom::experiments
