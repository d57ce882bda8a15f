#include "cli/work_progress.h"

#include <fmt/format.h>

namespace headroom::cli {

void WorkProgress::at(int64_t done, int64_t all) {
  constexpr int64_t kLines = 5;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  if (seconds.count() < patience_) {
    return;
  }
  const double each = done == 0 ? 0 : seconds.count() / static_cast<double>(done);
  const std::string left =
      done == 0 ? "" : fmt::format("  {} left", clock(each * static_cast<double>(all - done)));
  const std::string text = fmt::format("{} {}/{}{}", what_, done, all, left);
  if (line_.terminal()) {
    line_.live(text, text);
  } else if (done * kLines >= lines_ * all) {
    line_.line(text);
    lines_ = done * kLines / all + 1;
  }
}

}  // namespace headroom::cli
