// A step kept as the calls it makes: asking for each through modules, tape and checks takes a fifth
// of a small model's decode step, and as long as the kernels where those are tiny.
#pragma once

#include <functional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tensor/memory_watch.h"

namespace headroom::kernels {

/// Kernels, copies and fills with zeros in the order in which a thread asked for them, with handles
/// to all the tensors they work on.
class CallRecording final : public Recording, private MemoryWatch {
 public:
  /// Runs `step` and keeps what it asks of the device.
  CallRecording(Device device, const std::function<void()>& step);
  void replay() override;

  /// This thread's while its step runs, but for the time inside a kernel; or nullptr.
  static CallRecording* current() { return current_; }
  /// Keeps a call of backend(device).*kernel.
  template <class... P, class... A>
  void keep(void (Backend::*kernel)(P...), const A&... args) {
    calls_.push_back([kernel, kept = std::tuple<typename Kept<P>::type...>(Kept<P>::of(args)...)](
                         Backend& device) mutable {
      std::apply([&](auto&... each) { (device.*kernel)(each...); }, kept);
    });
  }

  /// What a kernel asks for itself is its own affair: while this lives, nothing is kept.
  class InsideKernel {
   public:
    InsideKernel() : recording_(std::exchange(current_, nullptr)) {
      if (recording_ != nullptr) [[unlikely]] {
        MemoryWatch::exchange(recording_->around_);
      }
    }
    ~InsideKernel() {
      if (recording_ != nullptr) [[unlikely]] {
        MemoryWatch::exchange(recording_);
      }
      current_ = recording_;
    }
    InsideKernel(const InsideKernel&) = delete;
    InsideKernel& operator=(const InsideKernel&) = delete;

   private:
    CallRecording* recording_;
  };

 private:
  /// An argument as it is kept: by value, a span as a vector.
  template <class P>
  struct Kept {
    using type = std::remove_cvref_t<P>;
    static const type& of(const type& argument) { return argument; }
  };
  template <class T>
  struct Kept<std::span<T>> {
    using type = std::vector<std::remove_const_t<T>>;
    static type of(std::span<const T> argument) { return type(argument.begin(), argument.end()); }
  };

  void stop();
  /// Sees copies and fills, and shows them to what saw them before.
  void run(const char* name, size_t bytes, const std::function<void()>& act) override;

  static inline constinit thread_local CallRecording* current_ = nullptr;
  Device device_;
  MemoryWatch* around_ = nullptr;
  std::vector<std::function<void(Backend&)>> calls_;
};

}  // namespace headroom::kernels
