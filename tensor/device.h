// Where a tensor's memory is.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

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

/// Lets a message take a Device as it is: only a check that fails spells it out.
template <>
struct fmt::formatter<headroom::Device> : fmt::formatter<std::string_view> {
  fmt::format_context::iterator format(headroom::Device device,
                                       fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(headroom::name_of(device), context);
  }
};
