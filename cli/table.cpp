// Aligning columns by display width.
#include "cli/table.h"

#include <algorithm>

#include "experiments/format.h"

namespace headroom::cli {

std::string aligned(const std::vector<Row>& rows, size_t left, size_t indent) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; row.size() > 1 && i < row.size(); ++i) {
      widths[i] = std::max(widths[i], experiments::display_width(row[i]));
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t width = experiments::display_width(row[i]);
      const std::string padding(std::max(widths[i], width) - width, ' ');
      line += i < left ? row[i] + padding : padding + row[i];
      line += "  ";
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace headroom::cli
