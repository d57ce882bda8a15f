// The progress of a benchmark, with the time left.
#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::cli {

void BenchProgress::at(int64_t done, int64_t all) {
  constexpr int64_t kLines = 5;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  const double each = done == 0 ? 0 : seconds.count() / static_cast<double>(done);
  const std::string left =
      done == 0 ? "" : fmt::format("  {} left", clock(each * static_cast<double>(all - done)));
  const std::string text = fmt::format("{} {}/{}{}", what_, done, all, left);
  if (line_.terminal()) {
    line_.live(text, text);
  } else if (done % std::max<int64_t>(1, all / kLines) == 0 || done == all) {
    line_.line(text);
  }
}

}  // namespace headroom::cli
