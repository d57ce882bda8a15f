// Whether a text has a part.
#pragma once

#include <string>
#include <string_view>

namespace headroom::testing {

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace headroom::testing
