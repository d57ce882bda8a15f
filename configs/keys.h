// The keys a config has, and which one an unknown key was meant to be.
#pragma once

#include <string>
#include <string_view>

namespace headroom::configs {

/// Whether the config has this section ("model").
bool is_section(std::string_view section);

/// The rest of the sentence "model.n_heads is no key ...": the nearest key, or the section the key
/// belongs to, or what there is to choose from. `section` is empty for a key at the top level.
std::string suggestion(std::string_view section, std::string_view key);

}  // namespace headroom::configs
