// The configs under configs/, inside the program: an installed one knows its presets by name.
#pragma once

#include <span>
#include <string_view>

namespace headroom::cli {

struct Preset {
  std::string_view name;  // "gqa" for configs/gqa.yaml
  std::string_view yaml;
};

/// In the order of the files' names. CMake writes the definition (cli/CMakeLists.txt).
std::span<const Preset> presets();

}  // namespace headroom::cli
