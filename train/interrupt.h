// Ctrl-C and SIGTERM as a request that the loop can honour between two steps.
#pragma once

namespace headroom::train {

/// Exit status of a program that Ctrl-C ended, as a shell has it.
inline constexpr int kInterrupted = 130;

/// While one lives, the first SIGINT or SIGTERM is remembered and the second ends the process at
/// once with kInterrupted: files are replaced whole (tensor/file.h), so that does no harm. One at a
/// time per process.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  bool requested() const;
};

}  // namespace headroom::train
