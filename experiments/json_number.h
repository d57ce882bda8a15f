// Figures in JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace headroom::experiments {

/// null where there is none, or where it is not finite: JSON has no such numbers.
nlohmann::ordered_json number(const std::optional<double>& value);

}  // namespace headroom::experiments
