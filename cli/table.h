// Columns of text, aligned.
#pragma once

#include <string>
#include <vector>

namespace headroom::cli {

using Row = std::vector<std::string>;

/// One line per row, each indented by `indent` spaces: the first `left` columns are aligned to the
/// left, the others to the right, two spaces apart. Rows may be of different lengths; a row of one
/// cell is a line of its own and widens no column.
std::string aligned(const std::vector<Row>& rows, size_t left = 1, size_t indent = 0);

}  // namespace headroom::cli
