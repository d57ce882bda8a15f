// The report's charts, drawn by gnuplot as SVG: made to be read at 350 pixels of width as well as
// at 600. Rows keep one colour and one mark in every chart (Okabe and Ito's colours, which most
// colour-blind readers tell apart).
#pragma once

#include <string>

#include "experiments/result.h"
#include "experiments/summary.h"

namespace headroom::experiments {

/// The colour and mark of a row as HTML, for tables and legends.
std::string row_mark(size_t row);

/// Each chart is a gnuplot script that writes one SVG to stdout; empty when there is nothing to
/// show.

/// Cache per token against best validation loss: mean, one standard deviation, and every seed.
/// Where all rows have one cache size, n_kv_head takes its place on the axis.
std::string cache_chart(const Sweep& sweep, const Summary& summary);

/// Validation loss against training tokens, one line per row, with the band from the lowest to the
/// highest seed.
std::string curves_chart(const Sweep& sweep);

/// The same minus the multi-head row's loss of the same seed at the same step, rows that were
/// evaluated at its steps only.
std::string difference_chart(const Sweep& sweep, const Summary& summary);

}  // namespace headroom::experiments
