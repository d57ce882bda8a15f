// What was measured on a trained model, as exhibits: `headroom analyze` shows them of any run, and
// `headroom reproduce` of the sweep's members.
#pragma once

#include "experiments/drafting.h"
#include "experiments/exhibit.h"
#include "experiments/kv_bits.h"
#include "experiments/low_rank.h"
#include "experiments/sink_mass.h"
#include "experiments/trained_model.h"
#include "experiments/uptrain.h"
#include "experiments/window_sinks.h"

namespace headroom::experiments {

/// Mass on token 0 by layer and head.
Exhibit show_sink_mass(const TrainedModel& trained, const SinkMass& mass);
/// Mass on the learned sink logits, and on token 0 beside them. `mass.learned` is not empty.
Exhibit show_learned_sink(const TrainedModel& trained, const SinkMass& mass);
/// `losses` as window_losses() gives them.
Exhibit show_window_sinks(const TrainedModel& trained, const std::vector<WindowLoss>& losses);
Exhibit show_low_rank(const TrainedModel& trained, const LowRank& result);
/// Losses of several models on the passages of the last one.
Exhibit show_kv_bits(const TrainedModel& last, const std::vector<BitsLoss>& losses);
/// What drafts came to for `helped`; at least one.
Exhibit show_draft(const TrainedModel& helped, const std::vector<DraftResult>& results);
/// Losses by falling number of KV heads.
Exhibit show_uptrain(const std::vector<Uptraining>& all);

/// The window that stands for the published 256 keys of a context of 1024.
inline int64_t usual_window(int64_t context) { return context / 4; }

}  // namespace headroom::experiments
