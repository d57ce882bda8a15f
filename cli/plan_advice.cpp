// What makes weights and cache fit: the ranked reliefs of `headroom plan --memory`.
#include <nlohmann/json.hpp>

#include "cli/plan.h"
#include "cli/table.h"
#include "configs/count.h"
#include "experiments/format.h"
#include "tensor/check.h"

namespace headroom::cli {
namespace {

using configs::human_bytes;
using experiments::RankedRelief;

/// What a relief costs, in words.
std::string cost_text(const RankedRelief& relief) {
  if (relief.slow) {
    return "exact, but each token reads the file";
  }
  if (!relief.loss) {
    return "not measured";
  }
  return *relief.loss == 0 && !relief.retrains ? "none"
                                               : fmt::format("{:+.4f} nats/token", *relief.loss);
}

std::string how_text(const RankedRelief& relief) {
  return relief.retrains ? "train anew, or convert and uptrain" : "as trained";
}

std::vector<Row> table_of(const Plan& plan) {
  std::vector<Row> rows = {{"relief", "loss", "how", "weights", "cache", "together"}};
  for (const RankedRelief& relief : plan.reliefs) {
    if (relief.fits) {
      rows.push_back({"  " + relief.name, cost_text(relief), how_text(relief),
                      human_bytes(relief.weights_bytes), human_bytes(relief.cache_bytes),
                      human_bytes(relief.total_bytes())});
    }
  }
  return rows;
}

std::string sources_text(const Plan& plan) {
  return plan.measured.empty()
             ? "No study at hand: train a sweep, run reproduce, and name the folder with --study.\n"
             : fmt::format(
                   "Losses measured in {}, on the models there: other models may lose "
                   "more or less.\n",
                   fmt::join(plan.measured.sources, " and "));
}

}  // namespace

std::string advice_text(const Plan& plan) {
  const RankedRelief& now = plan.reliefs.front();
  std::string text =
      fmt::format("Weights (fp32) and a cache of {} * {} tokens in {}: {} of {}, which {}\n",
                  experiments::format_count(plan.context), experiments::format_count(plan.batch),
                  plan.dtype, human_bytes(now.total_bytes()), human_bytes(*plan.memory),
                  now.fits ? "fits as it is." : "is too much.");
  const std::vector<Row> rows = table_of(plan);
  const size_t failed = plan.reliefs.size() + 1 - rows.size();
  text += rows.size() > 1 ? aligned(rows, 3) : "No relief makes it fit.\n";
  if (failed > 0 && rows.size() > 1) {
    text += fmt::format("{} more would not fit.\n", failed);
  }
  for (const RankedRelief& relief : plan.reliefs) {
    if (relief.fits && !relief.warning.empty()) {
      text += fmt::format("Warning: {}: {}.\n", relief.name, relief.warning);
    }
  }
  return text + sources_text(plan);
}

nlohmann::ordered_json advice_json(const Plan& plan) {
  nlohmann::ordered_json reliefs = nlohmann::ordered_json::array();
  for (const RankedRelief& relief : plan.reliefs) {
    const nlohmann::ordered_json loss =
        relief.loss ? nlohmann::ordered_json(*relief.loss) : nlohmann::ordered_json(nullptr);
    reliefs.push_back({{"relief", relief.name},
                       {"weights_bytes", relief.weights_bytes},
                       {"cache_bytes", relief.cache_bytes},
                       {"fits", relief.fits},
                       {"loss_nats", loss},
                       {"slow", relief.slow},
                       {"retrains", relief.retrains},
                       {"warning", relief.warning}});
  }
  return {
      {"memory_bytes", *plan.memory}, {"reliefs", reliefs}, {"measured_in", plan.measured.sources}};
}

}  // namespace headroom::cli
