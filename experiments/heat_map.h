// A share per layer and head as a picture.
#pragma once

#include <string>
#include <vector>

namespace headroom::experiments {

/// A gnuplot script: a row per layer, the first on top, a column per head, darker for more; each
/// cell says its percentage where there are few enough to read. Empty without cells. The rows are
/// equally long.
std::string heat_map(const std::vector<std::vector<double>>& cells, const std::string& what);

}  // namespace headroom::experiments
