// What a mistyped command or option is answered with, and --version.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}  // namespace CLI

namespace headroom::cli {

/// ": did you mean 'train'?", or "" when none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// Throws InputError for the first of `arguments` that looks like an option and is none of `app`,
/// with the nearest it has. CLI11 would complain of a missing argument first, and suggests nothing.
void check_option_names(const CLI::App& app, std::span<const std::string> arguments);

/// Version, backends, instruction set, GEMM library and threads, one per line.
std::string version_text();

}  // namespace headroom::cli
