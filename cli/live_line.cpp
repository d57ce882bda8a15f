// Painting a line over, within the terminal's width.
#include "cli/live_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

namespace headroom::cli {

std::string clock(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t h = whole / 3600, m = whole / 60 % 60, s = whole % 60;
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{}:{:02}", m, s);
}

LiveLine::LiveLine(const Common& common)
    : common_(common), terminal_(::isatty(STDERR_FILENO) != 0) {}

void LiveLine::line(const std::string& text) {
  end();
  if (!common_.quiet) {
    write(text + '\n');
  }
}

void LiveLine::live(const std::string& text, const std::string& brief) {
  if (common_.quiet) {
    return;
  }
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // The last column stays free: some terminals wrap when it is written to.
  const size_t width = known ? size.ws_col - 1U : 79U;
  write(fmt::format("\r{}\x1b[K", (text.size() <= width ? text : brief).substr(0, width)));
  live_ = true;
}

void LiveLine::end() {
  if (live_) {
    write("\n");
    live_ = false;
  }
}

}  // namespace headroom::cli
