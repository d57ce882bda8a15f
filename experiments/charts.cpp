// Scripts hold numbers and this file's own words only, so no text of the user's can reach gnuplot.
#include "experiments/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "experiments/chart_style.h"
#include "experiments/format.h"

namespace headroom::experiments {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  double span() const { return high - low; }
};

// A tenth of the span stays free at both ends; `sign` shows the plus.
std::string y_axis(const Range& range, const char* sign = "") {
  const double pad = range.span() > 0 ? 0.1 * range.span() : 0.01;
  const double span = range.span() + 2 * pad;
  const int decimals = span < 0.01 ? 4 : span < 0.1 ? 3 : span < 1 ? 2 : 1;
  return fmt::format("set yrange [{}:{}]\nset format y \"%{}.{}f\"\n", range.low - pad,
                     range.high + pad, sign, decimals);
}

// Where each row stands on the x axis of cache_chart, and the words under and above it.
struct CacheAxis {
  std::vector<double> x;
  std::string settings;
};

// "\"8\" 13, \"4\" 12".
std::string tics(const std::map<double, std::string>& words) {
  std::string list;
  for (const auto& [x, text] : words) {
    list += fmt::format("{}\"{}\" {}", list.empty() ? "" : ", ", text, x);
  }
  return list;
}

CacheAxis cache_axis(const Sweep& sweep) {
  const int64_t first = sweep.rows.front().cache_bytes_per_token;
  const bool one_size = std::all_of(sweep.rows.begin(), sweep.rows.end(), [&](const Row& row) {
    return row.cache_bytes_per_token == first;
  });
  CacheAxis axis;
  std::map<double, std::string> below;
  std::map<double, std::string> above;
  Range range;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const Row& row = sweep.rows[i];
    const double bytes = static_cast<double>(std::max<int64_t>(row.cache_bytes_per_token, 1));
    const double x = one_size ? static_cast<double>(i) : std::log2(bytes);
    axis.x.push_back(x);
    range.include(x);
    const std::string place = one_size ? label_of(row) : fmt::format("{:.4g}", bytes / 1024);
    below[x] = place;
    std::string& names = above[x];
    names += (names.empty() ? "" : ", ") + (one_size ? std::to_string(row.n_layer) : label_of(row));
  }
  axis.settings = fmt::format(
      "set border 7\nset xrange [{}:{}]\nset x2range [{}:{}]\nset xtics ({})\nset x2tics ({})\n"
      "set x2label \"{}\" offset 0,-0.5\nset tmargin 3.6\n",
      range.low - 0.5, range.high + 0.5, range.low - 0.5, range.high + 0.5, tics(below),
      tics(above), one_size ? "layers" : "n_kv_head");
  if (one_size) {
    axis.settings +=
        fmt::format("set xlabel \"n_kv_head (each {} of cache per token)\" offset 0,0.7\n",
                    format_bytes(first));
  }
  return axis;
}

// Mean, lowest and highest value over the seeds at one number of training tokens.
struct BandPoint {
  double tokens, mean, low, high;
};

// Values by step of every run, of the steps that all runs reached with a finite value.
std::vector<BandPoint> band(const std::vector<std::vector<LossPoint>>& runs) {
  std::map<int64_t, std::pair<int64_t, std::vector<double>>> by_step;
  for (const std::vector<LossPoint>& run : runs) {
    for (const LossPoint& point : run) {
      if (!std::isfinite(point.val_loss)) continue;
      by_step[point.step].first = point.tokens;
      by_step[point.step].second.push_back(point.val_loss);
    }
  }
  std::vector<BandPoint> points;
  for (const auto& [step, entry] : by_step) {
    const auto& [tokens, values] = entry;
    if (values.size() != runs.size()) continue;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    points.push_back({static_cast<double>(tokens), mean(values), *low, *high});
  }
  return points;
}

// One band and one line per row over training tokens; empty when there is no point at all.
std::string bands_script(const Sweep& sweep, const std::vector<std::vector<BandPoint>>& bands,
                         const char* ylabel, bool difference) {
  Range tokens;
  Range losses;
  size_t most_points = 0;
  for (const std::vector<BandPoint>& points : bands) {
    most_points = std::max(most_points, points.size());
    for (const BandPoint& point : points) {
      tokens.include(point.tokens);
      losses.include(point.low);
      losses.include(point.high);
    }
  }
  if (tokens.empty()) return {};
  const bool millions = tokens.high >= 1e6;
  const double unit = millions ? 1e6 : 1e3;
  std::string script = chart_preamble(
      millions ? "training tokens (millions)" : "training tokens (thousands)", ylabel);
  if (difference) losses.include(0);
  script += y_axis(losses, difference ? "+" : "");
  if (difference) script += "set minussign\nset xzeroaxis lt 1 lc rgb \"black\" lw 1\n";
  script += fmt::format("set xrange [0:{}]\n", std::max(tokens.high, 1.0) / unit * 1.02);
  std::string fills;
  std::string lines;
  for (size_t i = 0; i < bands.size(); ++i) {
    if (bands[i].empty()) continue;
    script += fmt::format("$row{} << EOD\n", i);
    for (const BandPoint& p : bands[i]) {
      script += fmt::format("{} {} {} {}\n", p.tokens / unit, p.mean, p.low, p.high);
    }
    script += "EOD\n";
    const ChartLook& look = chart_look(i);
    const std::string title = title_of(sweep.rows[i]);
    fills += fmt::format("$row{} using 1:3:4 with filledcurves lc rgb \"{}\" title \"{}\", ", i,
                         look.color, title);
    lines += fmt::format(
        "$row{} using 1:2 with linespoints lc rgb \"{}\" lw 2 pt {} ps 0.6 pi {} title \"{}\", ", i,
        look.color, look.point_type, std::max<size_t>(1, most_points / 8), title);
  }
  std::string plots = fills + lines;
  plots.resize(plots.size() - 2);
  return script + "plot " + plots + "\n";
}

// The losses of `run` minus those of `reference` at the same step.
std::vector<LossPoint> minus(const SeedRun& run, const SeedRun& reference) {
  std::vector<LossPoint> points;
  for (const LossPoint& point : run.curve) {
    for (const LossPoint& other : reference.curve) {
      if (other.step != point.step || other.tokens != point.tokens) continue;
      points.push_back({point.step, point.tokens, point.val_loss - other.val_loss});
    }
  }
  return points;
}

}  // namespace

std::string row_mark(size_t row) {
  return fmt::format("<span class=\"mark\" style=\"color: {}\">{}</span>", chart_look(row).color,
                     chart_look(row).mark);
}

std::string cache_chart(const Sweep& sweep, const Summary& summary) {
  if (sweep.rows.empty()) return {};
  const CacheAxis axis = cache_axis(sweep);
  Range losses;
  std::string data;
  std::string plots;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    const LossSummary& best = summary.rows[i].best;
    if (!std::isfinite(best.mean)) continue;
    const double spread = best.sd.value_or(0);
    losses.include(best.mean - spread);
    losses.include(best.mean + spread);
    data += fmt::format("$row{} << EOD\n{} {} {}\nEOD\n$seeds{} << EOD\n", i, axis.x[i], best.mean,
                        spread, i);
    for (const double value : best.values) {
      losses.include(value);
      data += fmt::format("{} {}\n", axis.x[i] - 0.12, value);
    }
    data += "EOD\n";
    const ChartLook& look = chart_look(i);
    const bool several = best.values.size() > 1;
    if (several) {
      plots += fmt::format(
          "$seeds{} using 1:2 with points pt 7 ps 0.35 lc rgb \"#707070\" title \"single seeds\", ",
          i);
    }
    plots += fmt::format("$row{} using {} lw 2 pt {} ps 1.1 lc rgb \"{}\" title \"{}\", ", i,
                         several ? "1:2:3 with yerrorbars" : "1:2 with points", look.point_type,
                         look.color, title_of(sweep.rows[i]));
  }
  if (losses.empty()) return {};
  plots.resize(plots.size() - 2);
  std::string script = chart_preamble("cache per token (KiB)", "best validation loss (nats/token)");
  script += axis.settings + y_axis(losses) + data;
  if (summary.reference && std::isfinite(summary.rows[*summary.reference].best.mean)) {
    plots = fmt::format("{} with lines dt 2 lw 1 lc rgb \"#808080\" title \"MHA\", {}",
                        summary.rows[*summary.reference].best.mean, plots);
  }
  return script + "plot " + plots + "\n";
}

std::string curves_chart(const Sweep& sweep) {
  std::vector<std::vector<BandPoint>> bands;
  for (const Row& row : sweep.rows) {
    std::vector<std::vector<LossPoint>> curves;
    for (const SeedRun& run : row.runs) curves.push_back(run.curve);
    bands.push_back(band(curves));
  }
  return bands_script(sweep, bands, "validation loss (nats/token)", false);
}

std::string difference_chart(const Sweep& sweep, const Summary& summary) {
  if (!summary.reference) return {};
  const Row& reference = sweep.rows[*summary.reference];
  std::vector<std::vector<BandPoint>> bands(sweep.rows.size());
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    if (i == *summary.reference) continue;
    std::vector<std::vector<LossPoint>> differences;
    for (const SeedRun& run : sweep.rows[i].runs) {
      for (const SeedRun& other : reference.runs) {
        if (other.seed == run.seed) differences.push_back(minus(run, other));
      }
    }
    bands[i] = band(differences);
  }
  return bands_script(sweep, bands, "difference from MHA (nats/token)", true);
}

}  // namespace headroom::experiments
