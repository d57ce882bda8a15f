// What the tests of text/ share.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "tensor/check.h"

namespace headroom::text {

/// True when `text` has every one of `parts` in it.
inline ::testing::AssertionResult holds(std::string_view text,
                                        std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) == std::string_view::npos) {
      return ::testing::AssertionFailure() << "\"" << text << "\" lacks \"" << part << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

/// The message of the InputError that `function` throws.
template <class Function>
std::string input_error(Function&& function) {
  try {
    function();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

}  // namespace headroom::text
