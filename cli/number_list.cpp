// Parsing whole numbers divided by commas.
#include "cli/number_list.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <charconv>

#include "tensor/check.h"

namespace headroom::cli {

void add_numbers(CLI::App& app, const std::string& name, std::vector<int64_t>& values, int64_t min,
                 const std::string& help, const std::string& usual) {
  static constexpr int64_t kMost = 1'000'000'000;
  const auto read = [&values, name, min](const std::string& text) {
    values.clear();
    for (const char *at = text.data(), *end = at + text.size();;) {
      int64_t value = 0;
      const auto [stop, error] = std::from_chars(at, end, value);
      check_input(error == std::errc() && value >= min && value <= kMost &&
                      (stop == end || (*stop == ',' && stop + 1 != end)),
                  "{} is {}, but must be whole numbers from {} to {} divided by commas", name, text,
                  min, kMost);
      values.push_back(value);
      if (stop == end) {
        return;
      }
      at = stop + 1;
    }
  };
  app.add_option_function<std::string>(name, read, help)
      ->type_name("N,N,...")
      ->default_str(usual.empty() ? fmt::format("{}", fmt::join(values, ",")) : usual);
}

}  // namespace headroom::cli
