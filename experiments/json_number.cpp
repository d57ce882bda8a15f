#include "experiments/json_number.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace headroom::experiments {

nlohmann::ordered_json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value)
                                        : nlohmann::ordered_json(nullptr);
}

}  // namespace headroom::experiments
