// Figures in JSON.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace headroom::experiments {

/// null where there is none, or where it is not finite: JSON has no such numbers.
inline nlohmann::ordered_json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value)
                                        : nlohmann::ordered_json(nullptr);
}

}  // namespace headroom::experiments
