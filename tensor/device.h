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
/// The device of that name; "cuda" is the first GPU. Throws InputError, which calls the name `what`
/// ("--device") and says what is allowed. Whether there is such a device, its backend knows.
Device parse_device(std::string_view name, std::string_view what);

}  // namespace headroom

/// Lets a message take a Device as it is: only a check that fails spells it out.
template <>
struct fmt::formatter<headroom::Device> : fmt::formatter<std::string_view> {
  fmt::format_context::iterator format(headroom::Device device,
                                       fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(headroom::name_of(device), context);
  }
};
