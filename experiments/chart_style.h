// What all charts share: colours and marks, and gnuplot's settings before the first plot.
#pragma once

#include <cstddef>
#include <string>

namespace headroom::experiments {

struct ChartLook {
  const char* color;
  int point_type;    // gnuplot's
  const char* mark;  // the character that looks like it
};

/// The look of the i-th line, row or series; they repeat after six.
const ChartLook& chart_look(size_t i);

/// Settings for a chart that can be read at 350 pixels of width: size, font, axes with these
/// labels, a grid of the y axis. Titles of plots show as tooltips; the legend is the page's
/// (chart_legend).
std::string chart_preamble(const std::string& xlabel, const std::string& ylabel);

}  // namespace headroom::experiments
