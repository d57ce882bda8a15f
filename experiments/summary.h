// What a sweep's numbers say: the means, the differences from multi-head attention, the verdicts.
// The table, the result files and the report all take their figures from here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/result.h"
#include "experiments/statistics.h"

namespace headroom::experiments {

/// A loss over the seeds of one row.
struct LossSummary {
  double mean = 0;           ///< NaN without runs or when a run diverged
  std::optional<double> sd;  ///< null with one seed
  std::vector<double> values;
};

enum class Verdict : uint8_t {
  reference,   ///< this is the multi-head row
  unresolved,  ///< the 95 % interval holds zero
  worse,
  better,
  one_seed,      ///< one seed in common with the reference: nothing can be said
  no_runs,       ///< this row has no finished run
  diverged,      ///< a loss of this row or of the reference is not finite
  no_reference,  ///< no multi-head run with a seed of this row
};

struct RowSummary {
  LossSummary best;
  LossSummary final;
  std::optional<PairedDifference>
      delta;  ///< best loss minus the reference's; null without common seeds
  Verdict verdict = Verdict::no_runs;
  std::string sentence;  ///< the verdict in words
  std::optional<double>
      published;  ///< best loss in the published study, where it can stand beside ours
};

struct Summary {
  std::vector<RowSummary> rows;      ///< in the order of Sweep::rows
  std::optional<size_t> reference;   ///< index of the multi-head row
  std::optional<double> resolvable;  ///< the widest ci95 of the rows compared with the reference
  std::optional<int64_t> seeds_for_goal;  ///< seeds whose ci95 would be at most kGoal in every row
  int64_t runs_done = 0;
  int64_t runs_planned = 0;
};

/// The difference in loss, in nats, that a sweep is asked to resolve.
inline constexpr double kGoal = 0.005;

Summary summarize(const Sweep& sweep);

}  // namespace headroom::experiments
