// Errors and the one way to raise them.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace headroom {

/// Something failed: a kernel was handed the wrong shape, a file could not be written. Exit
/// status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user's input can't be used: a flag, a config key, a file's content. Exit status 2.
class InputError : public Error {
 public:
  using Error::Error;
};

/// Throws E with the formatted message unless `ok`. Messages read "[subject] rule: got values".
template <class E = Error, class... Args>
void check(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]] {
    throw E(fmt::format(message, std::forward<Args>(args)...));
  }
}

/// check() for what the user handed in.
template <class... Args>
void check_input(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]] {
    throw InputError(fmt::format(message, std::forward<Args>(args)...));
  }
}

}  // namespace headroom
