// What headroom generate says of how it went: --stats.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "infer/engine.h"

namespace headroom::cli {

struct GenerateReport {
  infer::GenerateStats stats;
  infer::GenerationPlan plan;

  std::string weights;       // their type
  int64_t weight_bytes = 0;  // read once in a pass
  int64_t beams = 0;         // 0: none
  bool drafted = false;
  int64_t plain_tokens = 0;  // drawn without the draft, to compare with
  double plain_seconds = 0;
};

/// One line each, for stderr.
std::vector<std::string> stats_lines(const GenerateReport& report);
nlohmann::ordered_json stats_json(const GenerateReport& report);

}  // namespace headroom::cli
