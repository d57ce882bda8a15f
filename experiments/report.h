// report.html: a sweep on one self-contained page, for screens from 390 pixels up and for print.
#pragma once

#include <filesystem>
#include <string>

#include "experiments/result.h"
#include "experiments/summary.h"

namespace headroom::experiments {

struct Report {
  std::string html;     ///< asks for nothing outside itself and runs no script
  std::string warning;  ///< why charts couldn't be drawn: a note stands in their place
};

Report make_report(const Sweep& sweep, const Summary& summary);

/// Writes report.html into `folder`, whole or not at all, and returns the warning (empty: none).
std::string write_report(const std::filesystem::path& folder, const Sweep& sweep,
                         const Summary& summary);

/// What was found, in two plain sentences: what happens to the cache, and what happens to the loss.
std::string finding(const Sweep& sweep, const Summary& summary);

/// Where the intervals come from and what they can resolve, in two sentences.
std::string statistics_in_words(const Summary& summary);

}  // namespace headroom::experiments
