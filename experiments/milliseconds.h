// How long something takes.
#pragma once

#include <chrono>

namespace headroom::experiments {

/// Wall time of f().
template <class F>
double milliseconds(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace headroom::experiments
