// Bytes in words; the arithmetic itself is in the header.
#include "configs/count.h"

#include <fmt/format.h>

#include <array>

namespace headroom::configs {

std::string human_bytes(int64_t bytes) {
  if (Count(bytes).saturated()) {
    return "more than 8 EiB";
  }
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    return fmt::format("{} bytes", bytes);
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace headroom::configs
