// The bytes of a safetensors file put together by hand.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::testing {

inline std::string little_endian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

inline std::string file_of(const std::string& header, const std::string& data = "") {
  return little_endian(header.size()) + header + data;
}

}  // namespace headroom::testing
