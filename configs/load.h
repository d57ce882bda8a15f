// Configs from YAML and from --set, strictly: a key that is unknown, repeated, in the wrong
// section, of the wrong type or out of range is refused with file, line, key, value and what is
// allowed. Nothing is ignored.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "configs/config.h"

namespace headroom::configs {

/// Reads the config at `path`, then applies `overrides` ("model.n_kv_head=4", the value in YAML) in
/// order; a later override of the same key wins. train.warmup_steps above train.steps is clipped,
/// and a sentence about it is appended to `notes`. Throws InputError.
Config load_config(const std::filesystem::path& path, std::span<const std::string> overrides = {},
                   std::vector<std::string>* notes = nullptr);

/// The same for text already in memory; messages call it `source`.
Config parse_config(std::string_view text, const std::string& source,
                    std::span<const std::string> overrides = {},
                    std::vector<std::string>* notes = nullptr);

/// The config a run was made with. `run` is the run folder or a file in it.
Config load_run_config(const std::filesystem::path& run,
                       std::span<const std::string> overrides = {},
                       std::vector<std::string>* notes = nullptr);

}  // namespace headroom::configs
