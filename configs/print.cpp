// Writes configs in the forms that people and programs read.
#include "configs/print.h"

#include <nlohmann/json.hpp>

#include "configs/value.h"

namespace headroom::configs {

std::string to_yaml(const Config& config) {
  std::string text;
  std::string_view open;
  for_each_field(config, [&](std::string_view section, const Field& field, const auto& value) {
    if (section != open) {
      open = section;
      text += fmt::format("{}:\n", section);
    }
    text += fmt::format("  {}: {}\n", field.name, to_text(value));
  });
  return text;
}

nlohmann::ordered_json to_json(const Config& config) {
  nlohmann::ordered_json json;
  for_each_field(config, [&](std::string_view section, const Field& field, const auto& value) {
    auto& slot = json[std::string(section)][std::string(field.name)];
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>) {
      slot = name_of(value);
    } else if constexpr (kIsListOfChoices<std::remove_cvref_t<decltype(value)>>) {
      slot = nlohmann::ordered_json::array();
      for (const auto each : value) {
        slot.push_back(name_of(each));
      }
    } else {
      slot = value;
    }
  });
  return json;
}

std::vector<Difference> differences(const Config& left, const Config& right) {
  std::vector<Difference> rows;
  for_each_field(left, [&](std::string_view section, const Field& field, const auto& value) {
    rows.push_back({fmt::format("{}.{}", section, field.name), to_text(value), ""});
  });
  size_t row = 0;
  for_each_field(right, [&](std::string_view, const Field&, const auto& value) {
    rows[row++].right = to_text(value);
  });
  std::erase_if(rows, [](const Difference& each) { return each.left == each.right; });
  return rows;
}

std::string reference() {
  std::string text;
  const Config defaults;
  for_each_field(defaults, [&](std::string_view section, const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    text += fmt::format("{:<28} {} ({})\n",
                        fmt::format("{}.{}: {}", section, field.name, to_text(value)), field.help,
                        allowed<T>(field));
  });
  return text;
}

}  // namespace headroom::configs
