// The pieces of HTML that the report is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::experiments {

/// Text that HTML shows as it stands. Control characters other than newline and tab, which HTML
/// doesn't know, become U+FFFD; "a ± b" stays on one line.
std::string escaped(std::string_view text);

struct Cell {
  std::string label;   ///< the column's name
  std::string detail;  ///< its second line, in the header only
  std::string value;   ///< HTML
  const char* kind;    ///< "", "number" or "words": how the style sheet sets it
};

/// A table whose header comes from its first row; `kind` is "cards" (on a phone each row becomes a
/// list of labels and values) or "narrow". `rows` are not empty and have the same columns.
std::string html_table(const char* kind, const std::vector<std::vector<Cell>>& rows);

/// A whole page around `body`, in the reports' style. It asks for nothing outside itself and runs
/// no script. `title` is text.
std::string html_page(std::string_view title, std::string_view body);

}  // namespace headroom::experiments
