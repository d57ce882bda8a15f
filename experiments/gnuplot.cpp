// Running gnuplot, and making its SVG fit to stand inside a page.
#include "experiments/gnuplot.h"

#include <fmt/format.h>

#include <string_view>

#include "experiments/process.h"
#include "tensor/check.h"

namespace headroom::experiments {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::string draw(const std::string& script, const std::string& id) {
  ProcessResult result;
  try {
    result = run_process({"gnuplot", "--default-settings", "-"}, script);
  } catch (const Error& error) {
    throw Error(fmt::format("[report] the charts need gnuplot (Debian package gnuplot-nox): {}",
                            error.what()));
  }
  const size_t start = result.out.find("<svg");
  const size_t title = result.out.find("<title>");
  const size_t content = result.out.find("</desc>");
  check(result.status == 0 && start < title && title < content && content != std::string::npos,
        "[report] gnuplot failed with exit status {}: {}", result.status, result.err);
  // Its title would show as a tooltip, and several charts on one page must not share ids.
  std::string svg = result.out.substr(start, title - start) + result.out.substr(content + 7);
  for (const char* reference : {"id='", "id=\"", "href='#", "url(#"}) {
    replace_all(svg, reference, std::string(reference) + id + "-");
  }
  return svg;
}

}  // namespace headroom::experiments
