// Configs as text: YAML that reads back bit for bit, JSON, the keys in which two differ, and the
// reference.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "configs/config.h"

namespace headroom::configs {

/// Every key in the order of config.h; parse_config(to_yaml(c)) == c for each c that check_config
/// accepts.
std::string to_yaml(const Config& config);

/// {"model": {"n_layer": 6, ...}, ...} in the same order.
nlohmann::ordered_json to_json(const Config& config);

/// One key in which two configs differ, with both values as YAML.
struct Difference {
  std::string key;  // "model.n_kv_head"
  std::string left;
  std::string right;
};

/// The keys in which two configs differ, in the order of config.h.
std::vector<Difference> differences(const Config& left, const Config& right);

/// One line per key for --help: name, default, what it does and what it may hold.
std::string reference();

}  // namespace headroom::configs
