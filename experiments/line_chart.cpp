// Data blocks, axes and one plot command.
#include "experiments/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/chart_style.h"

namespace headroom::experiments {
namespace {

constexpr double kInfinity = INFINITY;

struct Axis {
  double low = kInfinity, high = -kInfinity;
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

bool shown(const std::pair<double, double>& point, bool log_x, bool log_y) {
  return std::isfinite(point.first) && std::isfinite(point.second) && (!log_x || point.first > 0) &&
         (!log_y || point.second > 0);
}

/// The series as gnuplot's data blocks $s0, $s1, ..., and what they span.
std::string data_blocks(const std::vector<Series>& series, bool log_x, bool log_y, Axis& x,
                        Axis& y) {
  std::string text;
  for (size_t i = 0; i < series.size(); ++i) {
    text += fmt::format("$s{} << EOD\n", i);
    for (const auto& point : series[i].points) {
      if (!shown(point, log_x, log_y)) continue;
      x.include(point.first);
      y.include(point.second);
      text += fmt::format("{} {}\n", point.first, point.second);
    }
    text += "EOD\n";
  }
  return text;
}

/// Room around the points: a tenth of the span, or of a decade's logarithm.
std::string range(const char* name, const Axis& axis, bool log, bool from_zero) {
  if (log) {
    const double room = std::max(0.08 * std::log10(axis.high / axis.low), 0.05);
    return fmt::format("set logscale {0}\nset {0}range [{1}:{2}]\nset format {0} \"%g\"\n", name,
                       axis.low / std::pow(10, room), axis.high * std::pow(10, room));
  }
  const double low = from_zero ? std::min(0.0, axis.low) : axis.low;
  const double span = axis.high - low;
  const double room = span > 0 ? 0.08 * span : 0.05 * std::max(1.0, std::abs(axis.high));
  return fmt::format("set {}range [{}:{}]\n", name, from_zero && axis.low >= 0 ? 0 : low - room,
                     axis.high + room);
}

std::string tics(const std::vector<double>& values) {
  return values.empty() ? "" : fmt::format("set xtics ({})\n", fmt::join(values, ", "));
}

/// Wide numbers must not push the label off the picture.
constexpr const char* kRoomOnTheLeft = "set lmargin 11\n";

/// Text between gnuplot's double quotes.
std::string quoted(const std::string& text) {
  std::string inside;
  for (const char c : text) {
    if (c == '"' || c == '\\') inside += '\\';
    inside += c == '\n' ? ' ' : c;
  }
  return '"' + inside + '"';
}

}  // namespace

std::string line_chart(const LineChart& chart) {
  Axis x, y;
  const std::string data = data_blocks(chart.series, chart.log_x, chart.log_y, x, y);
  if (x.low > x.high) return {};
  std::string plots;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.series[i].points.empty()) continue;
    const ChartLook& look = chart_look(i);
    plots += fmt::format(
        "{}$s{} using 1:2 with linespoints lc rgb \"{}\" lw 2 pt {} ps 0.8 title {}",
        plots.empty() ? "" : ", ", i, look.color, look.point_type, quoted(chart.series[i].name));
  }
  return chart_preamble(chart.xlabel, chart.ylabel) + kRoomOnTheLeft +
         range("x", x, chart.log_x, false) + range("y", y, chart.log_y, chart.y_from_zero) +
         tics(chart.xtics) + data + "plot " + plots + "\n";
}

std::string bar_chart(const BarChart& chart) {
  Axis x, y;
  const std::string data = data_blocks(chart.series, false, chart.log_y, x, y);
  if (x.low > x.high) return {};
  const double width = 0.7 / static_cast<double>(chart.series.size());
  std::string names, plots;
  for (size_t group = 0; group < chart.groups.size(); ++group) {
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", quoted(chart.groups[group]), group);
  }
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const double shift = (static_cast<double>(i) + 0.5) * width - 0.35;
    plots += fmt::format("{}$s{} using ($1 + {}):2:({}) with boxes lc rgb \"{}\" title {}",
                         plots.empty() ? "" : ", ", i, shift, 0.94 * width, chart_look(i).color,
                         quoted(chart.series[i].name));
  }
  return chart_preamble(chart.xlabel, chart.ylabel) + kRoomOnTheLeft +
         "set style fill solid 0.85 noborder\n" +
         fmt::format("set xrange [-0.5:{}]\nset xtics ({}) scale 0\n",
                     static_cast<double>(chart.groups.size()) - 0.5, names) +
         range("y", y, chart.log_y, true) + data + "plot " + plots + "\n";
}

std::vector<std::string> legend_of(const std::vector<Series>& series) {
  std::vector<std::string> names;
  for (const Series& each : series) {
    if (series.size() > 1) names.push_back(each.name);
  }
  return names;
}

}  // namespace headroom::experiments
