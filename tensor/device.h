// Where a tensor's memory is.
#pragma once

#include <cstdint>
#include <string>

namespace headroom {

struct Device {
  enum class Type : uint8_t { cpu, cuda };
  Type type = Type::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

inline constexpr Device kCpu{};

/// "cpu", "cuda:0".
std::string name_of(Device device);

}  // namespace headroom
