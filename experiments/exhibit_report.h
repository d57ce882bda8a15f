// report.html of the whole study: every exhibit on one self-contained page, for screens from 390
// pixels up and for print.
#pragma once

#include "experiments/exhibit_file.h"
#include "experiments/report.h"

namespace headroom::experiments {

Report make_exhibit_report(const Reproduction& all);

}  // namespace headroom::experiments
