// The checks a config's bytes pass before a YAML parser sees them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom::configs {

/// A config is a page of text; a file above this is something else.
inline constexpr size_t kMaxConfigBytes = 1 << 20;

/// The bytes of the config file at `path`. Throws InputError when it is missing, unreadable, no
/// regular file or above kMaxConfigBytes, before reading it.
std::string read_config_file(const std::filesystem::path& path);

/// Throws InputError, naming `source`, line and column, unless `text` is at most kMaxConfigBytes of
/// UTF-8 that is not blank, without control characters, without a tab in an indentation and with
/// brackets nested at most 100 deep.
void check_source_text(std::string_view text, const std::string& source);

}  // namespace headroom::configs
