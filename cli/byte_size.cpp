// Sizes of memory as people write them: "8GiB".
#include "cli/byte_size.h"

#include <array>
#include <charconv>
#include <utility>

#include "tensor/check.h"

namespace headroom::cli {

int64_t parse_byte_size(const std::string& text, const std::string& option) {
  constexpr std::array<std::pair<std::string_view, double>, 11> kUnits = {{{"", 1},
                                                                           {"B", 1},
                                                                           {"KiB", 0x1p10},
                                                                           {"MiB", 0x1p20},
                                                                           {"GiB", 0x1p30},
                                                                           {"TiB", 0x1p40},
                                                                           {"kB", 1e3},
                                                                           {"KB", 1e3},
                                                                           {"MB", 1e6},
                                                                           {"GB", 1e9},
                                                                           {"TB", 1e12}}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string_view unit(stop, static_cast<size_t>(end - stop));
  unit.remove_prefix(unit.starts_with(' ') ? 1 : 0);
  for (const auto& [name, factor] : kUnits) {
    const double bytes = number * factor;
    if (error == std::errc() && unit == name && bytes >= 1 && bytes <= 0x1p62) {
      return static_cast<int64_t>(bytes);
    }
  }
  throw InputError(fmt::format(
      "{} is {}, but must be a number of bytes, KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as 8GiB",
      option, text));
}

}  // namespace headroom::cli
