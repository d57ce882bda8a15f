// What makes a config usable beyond each key's type: ranges, and the rules that tie two keys
// together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/config.h"

namespace headroom::configs {

/// A broken rule. `keys` are the keys it ties together ("model.n_kv_head"), the likeliest culprit
/// first.
struct Problem {
  std::vector<std::string> keys;
  std::string message;
};

/// The first rule that `config` breaks, if any. The head counts come first, so that their message
/// can give both numbers.
std::optional<Problem> find_problem(const Config& config);

/// For configs made in code: throws InputError with the first problem's message.
void check_config(const Config& config);

/// The same for a model alone, for whoever builds one.
void check_model(const ModelConfig& model);

}  // namespace headroom::configs
