// One value of a config as text: how it is printed, and how a message says what it may be.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "configs/config.h"
#include "tensor/check.h"

namespace headroom::configs {

/// YAML that reads back as the same value, bit for bit. A double always has a point or no exponent
/// (1.0e-6), because YAML 1.1 readers take 1e-6 for text.
inline std::string to_text(int64_t value) { return fmt::format("{}", value); }
inline std::string to_text(bool value) { return value ? "true" : "false"; }
inline std::string to_text(double value) {
  std::string text = fmt::format("{}", value);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  } else if (text.ends_with(".0")) {
    text.resize(text.size() - 2);
  }
  return text;
}
inline std::string to_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02X}", byte);
      continue;
    }
    text += c == '"' || c == '\\' ? "\\" : "";
    text += c;
  }
  return text + '"';
}
inline std::string to_text(const std::vector<int64_t>& value) {
  return fmt::format("[{}]", fmt::join(value, ", "));
}
template <class E>
requires std::is_enum_v<E> std::string to_text(E value) { return std::string(name_of(value)); }
template <class E>
requires std::is_enum_v<E> std::string to_text(const std::vector<E>& value) {
  std::vector<std::string> names;
  names.reserve(value.size());
  for (const E each : value) {
    names.push_back(to_text(each));
  }
  return fmt::format("[{}]", fmt::join(names, ", "));
}

/// Whether T is a list of named choices.
template <class T>
inline constexpr bool kIsListOfChoices = false;
template <class E>
requires std::is_enum_v<E>
inline constexpr bool kIsListOfChoices<std::vector<E>> = true;

/// "learned or rope".
template <class E>
std::string choices_of() {
  std::string list;
  const auto table = spellings(E{});
  for (size_t i = 0; i < table.size(); ++i) {
    list += i == 0 ? "" : i + 1 == table.size() ? " or " : ", ";
    list += table[i].second;
  }
  return list;
}

/// What a field may hold, to follow "must be": "a whole number from 1 to 1024", "learned or rope".
template <class T>
std::string allowed(const Field& field) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return fmt::format("a whole number from {:.0f} to {:.0f}", field.min, field.max);
  } else if constexpr (std::is_same_v<T, double>) {
    return fmt::format("a number from {} to {}", to_text(field.min), to_text(field.max));
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else if constexpr (std::is_enum_v<T>) {
    return choices_of<T>();
  } else if constexpr (kIsListOfChoices<T>) {
    return "a list of different ones of " + choices_of<typename T::value_type>();
  } else {
    return fmt::format("a list of different whole numbers from {:.0f} to {:.0f}", field.min,
                       field.max);
  }
}

/// Whether a value lies in its field's range. A NaN lies in none.
inline bool in_range(const Field& field, int64_t value) {
  return value >= static_cast<int64_t>(field.min) && value <= static_cast<int64_t>(field.max);
}
inline bool in_range(const Field& field, double value) {
  return value >= field.min && value <= field.max;
}
template <class T>
bool all_different(const std::vector<T>& value) {
  for (size_t i = 0; i < value.size(); ++i) {
    if (std::find(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(i), value[i]) !=
        value.begin() + static_cast<std::ptrdiff_t>(i)) {
      return false;
    }
  }
  return true;
}
inline bool in_range(const Field& field, const std::vector<int64_t>& value) {
  return !value.empty() && all_different(value) &&
         std::all_of(value.begin(), value.end(),
                     [&](int64_t each) { return in_range(field, each); });
}
template <class E>
requires std::is_enum_v<E>
bool in_range(const Field&, const std::vector<E>& value) { return all_different(value); }
template <class T>
bool in_range(const Field&, const T&) {
  return true;  // text, choices and flags have no range
}

}  // namespace headroom::configs
