// The exhibits, one function each, named by its id; exhibits.cpp has them in order.
#pragma once

#include "experiments/exhibit.h"

namespace headroom::experiments {

Exhibit latency_exhibit(const Study& study);
Exhibit end_to_end_exhibit(const Study& study);
Exhibit logits_equal_exhibit(const Study& study);
Exhibit memory_bill_exhibit(const Study& study);
Exhibit fused_view_exhibit(const Study& study);
Exhibit prefill_decode_exhibit(const Study& study);
Exhibit attention_fused_exhibit(const Study& study);
Exhibit flop_100_exhibit(const Study& study);
Exhibit worked_step_exhibit(const Study& study);
Exhibit presets_exhibit(const Study& study);
Exhibit sink_mass_exhibit(const Study& study);
Exhibit learned_sink_exhibit(const Study& study);
Exhibit window_sinks_exhibit(const Study& study);
Exhibit low_rank_exhibit(const Study& study);
Exhibit kv_bits_exhibit(const Study& study);
Exhibit kv_head_table_exhibit(const Study& study);
Exhibit cache_quality_exhibit(const Study& study);
Exhibit draft_exhibit(const Study& study);
Exhibit uptrain_exhibit(const Study& study);

}  // namespace headroom::experiments
