// gnuplot as a function from a script to a picture.
#pragma once

#include <string>

namespace headroom::experiments {

/// Runs gnuplot on a script and returns an <svg> element to put into a page, its ids prefixed with
/// `id`. Throws Error, naming Debian's package, when gnuplot is missing or fails.
std::string draw(const std::string& script, const std::string& id);

}  // namespace headroom::experiments
