// A sweep's results as exhibits.
#pragma once

#include "experiments/exhibit.h"
#include "experiments/result.h"
#include "experiments/summary.h"

namespace headroom::experiments {

/// Parameters, cache bytes and loss of every row.
Exhibit show_kv_head_table(const Sweep& sweep, const Summary& summary);
/// Loss against cache bytes; multi-query attention's loss as a percentage of perplexity too.
Exhibit show_cache_quality(const Sweep& sweep, const Summary& summary);

}  // namespace headroom::experiments
