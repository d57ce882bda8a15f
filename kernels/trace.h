// Where the time goes: while a Trace lives, the phases that its thread goes through and the kernels
// that it runs are timed, summed and listed. Without one, a phase or a kernel costs one branch.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/memory_watch.h"

namespace headroom::kernels {

/// What a kernel works on, in a few numbers. Text is made of them when a trace is shown, not while
/// one is recorded.
struct Operands {
  static constexpr size_t kMost = 6;
  std::array<int64_t, kMost> sizes{};
  uint8_t count = 0;  // of the sizes that are used; 0: nothing is known
  DType dtype = DType::f32;
  const char* letters = nullptr;  // a literal, one letter per size ("BTHDK"); absent: a shape
  const char* note = nullptr;     // a literal, such as "NT": the second matrix is transposed
};

/// "4096x1024x256 bf16 NT", "B 16 T 256 H 8 D 32 K 2 bf16"; "" for nothing.
std::string to_string(const Operands& operands);

struct TraceEvent {
  const char* name;
  bool kernel;                    // else a phase
  int64_t begin_ns, duration_ns;  // from the start of the trace
  Operands operands;              // of a kernel
};

/// All calls of one kernel within one phase.
struct KernelTotal {
  const char* name;
  int64_t calls = 0, ns = 0;
};

/// All occurrences of a phase within the phase around it.
struct PhaseTotal {
  const char* name = "";
  int64_t calls = 0, ns = 0;
  std::vector<KernelTotal> kernels;  // those in none of the phases inside
  std::vector<std::unique_ptr<PhaseTotal>> phases;
};

/// A recording of the thread that made it; other threads go on unrecorded. There is one at a time,
/// and it outlives the phases that begin under it.
class Trace : private MemoryWatch {
 public:
  static constexpr size_t kMostEvents = 400'000;  // 40 MB here, 60 MB as JSON
  /// Begins to record. Beyond `most_events` events only the sums go on. Throws Error while there
  /// is another trace.
  explicit Trace(size_t most_events = kMostEvents);
  ~Trace() override;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The phases so far that have ended. The root's time is that since the trace began.
  const PhaseTotal& totals();
  /// In the order in which they ended.
  const std::vector<TraceEvent>& events() const { return events_; }
  int64_t dropped_events() const { return dropped_; }

  /// This thread's, or nullptr.
  static Trace* current() { return current_; }

 private:
  friend class Phase;
  friend class Kernel;
  struct Open {
    PhaseTotal* phase;
    int64_t begin_ns;
  };
  /// Copies and fills with zeros are recorded as kernels.
  void run(const char* name, size_t bytes, const std::function<void()>& act) override;
  int64_t now() const;
  void enter(const char* name);
  void leave();
  void ran(const char* name, int64_t begin_ns, const Operands& operands);
  void keep(const TraceEvent& event);

  static inline constinit thread_local Trace* current_ = nullptr;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const size_t most_events_;
  PhaseTotal root_;
  std::vector<Open> open_;
  std::vector<TraceEvent> events_;
  int64_t dropped_ = 0;
  bool in_kernel_ = false;
};

/// A part of the program's work, such as "forward", from construction to destruction. Phases nest;
/// the name is a literal.
class Phase {
 public:
  explicit Phase(const char* name) : trace_(Trace::current()) {
    if (trace_ != nullptr) [[unlikely]] {
      trace_->enter(name);
    }
  }
  ~Phase() {
    if (trace_ != nullptr) [[unlikely]] {
      trace_->leave();
    }
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  Trace* trace_;
};

/// One kernel, from construction to destruction. What a kernel runs inside it is its own affair: a
/// kernel within a kernel is not recorded, so that times add up.
class Kernel {
 public:
  explicit Kernel(const char* name, const Operands& operands = {}) : trace_(Trace::current()) {
    if (trace_ != nullptr) [[unlikely]] {
      begin(name, operands);
    }
  }
  ~Kernel() {
    if (trace_ != nullptr) [[unlikely]] {
      trace_->ran(name_, begin_ns_, operands_);
    }
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 private:
  void begin(const char* name, const Operands& operands);

  Trace* trace_;
  const char* name_ = nullptr;
  int64_t begin_ns_ = 0;
  Operands operands_;
};

}  // namespace headroom::kernels
