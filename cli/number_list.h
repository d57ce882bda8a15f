// Options that hold several whole numbers: "512,1024,2048".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace headroom::cli {

/// Registers an option for whole numbers from min to 1'000'000'000 divided by commas; anything else
/// is refused with its name. The help shows `values` as the default, or `usual` in words.
void add_numbers(CLI::App& app, const std::string& name, std::vector<int64_t>& values, int64_t min,
                 const std::string& help, const std::string& usual = "");

}  // namespace headroom::cli
