// Copies and zeroing as whoever times them or keeps them sees them.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

namespace headroom {

/// While a thread has one, what its tensors copy or set to zero goes through it.
class MemoryWatch {
 public:
  virtual ~MemoryWatch() = default;
  /// Does `act`, which holds the tensors it works on and may be done again later. The name is a
  /// literal: "copy" or "zero".
  virtual void run(const char* name, size_t bytes, const std::function<void()>& act) = 0;

  /// This thread's, or nullptr.
  static MemoryWatch* current() { return current_; }
  /// Makes `watch` this thread's, or none with nullptr; returns the one before.
  static MemoryWatch* exchange(MemoryWatch* watch) { return std::exchange(current_, watch); }

 private:
  static inline constinit thread_local MemoryWatch* current_ = nullptr;
};

}  // namespace headroom
