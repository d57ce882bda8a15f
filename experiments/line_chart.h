// The charts that exhibits need: lines over numbers and bars over words, as gnuplot scripts.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace headroom::experiments {

struct Series {
  std::string name = {};
  std::vector<std::pair<double, double>> points = {};  // x and y; not finite: left out
};

struct LineChart {
  std::string xlabel = {}, ylabel = {};
  std::vector<Series> series = {};  // the i-th looks as chart_look(i) says
  bool log_x = false, log_y = false;
  bool y_from_zero = false;        // else the axis begins a little below the lowest point
  std::vector<double> xtics = {};  // where x has marks; none: gnuplot chooses
};

/// Empty when there is no point.
std::string line_chart(const LineChart& chart);

struct BarChart {
  std::string xlabel = {}, ylabel = {};
  std::vector<std::string> groups = {};  // words under the bars, some 40 characters in all
  std::vector<Series> series = {};  // the i-th bar of each group: points (index of group, value)
  bool log_y = false;
};

/// Empty when there is no bar. Bars begin at zero, or on a log axis a little below the lowest.
std::string bar_chart(const BarChart& chart);

/// The names of the series, for Exhibit::legend; none for a single one.
std::vector<std::string> legend_of(const std::vector<Series>& series);

}  // namespace headroom::experiments
