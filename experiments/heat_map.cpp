// One coloured square per cell, and its number on it.
#include "experiments/heat_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiments/chart_style.h"

namespace headroom::experiments {
namespace {

/// More columns than this leave no room for numbers.
constexpr size_t kMostLabelled = 12;

/// Lines "head layer percent" of the cells whose value is on one side of `middle`: numbers on dark
/// cells are white.
std::string labels(const std::vector<std::vector<double>>& cells, double middle, bool dark) {
  std::string text;
  for (size_t layer = 0; layer < cells.size(); ++layer) {
    for (size_t head = 0; head < cells[layer].size(); ++head) {
      const double value = cells[layer][head];
      if ((value > middle) == dark) {
        text += fmt::format("{} {} {:.{}f}\n", head, layer, 100 * value, value < 0.0995 ? 1 : 0);
      }
    }
  }
  return text;
}

}  // namespace

std::string heat_map(const std::vector<std::vector<double>>& cells, const std::string& what) {
  if (cells.empty() || cells.front().empty()) {
    return {};
  }
  const size_t layers = cells.size(), heads = cells.front().size();
  double most = 0;
  std::string data;
  for (const auto& row : cells) {
    most = std::max(most, *std::max_element(row.begin(), row.end()));
    for (const double value : row) {
      data += fmt::format("{} ", 100 * value);
    }
    data += "\n";
  }
  std::string script = chart_preamble("head", "layer");
  script += fmt::format(
      "set border 0\nunset grid\nset style fill solid 1 noborder\nset tics scale 0\nset rmargin "
      "12\n"
      "set xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset xtics {}\nset ytics {}\n"
      "set palette defined (0 \"#f2f6fb\", 0.5 \"#5b9bd0\", 1 \"#08306b\")\n"
      "set cbrange [0:{}]\nset cblabel \"{} (%)\" offset 0.5,0\n$cells << EOD\n{}EOD\n",
      static_cast<double>(heads) - 0.5, static_cast<double>(layers) - 0.5, (heads + 11) / 12,
      (layers + 11) / 12, 100 * std::max(most, 0.01), what, data);
  std::string plots = "plot $cells matrix with image pixels notitle";
  if (heads <= kMostLabelled) {
    for (const bool dark : {false, true}) {
      const char* name = dark ? "$dark" : "$light";
      const std::string lines = labels(cells, 0.45 * most, dark);
      if (lines.empty()) {
        continue;
      }
      script += fmt::format("{} << EOD\n{}EOD\n", name, lines);
      plots += fmt::format(", {} using 1:2:3 with labels font \",11\" tc rgb \"{}\" notitle", name,
                           dark ? "white" : "black");
    }
  }
  return script + plots + "\n";
}

}  // namespace headroom::experiments
