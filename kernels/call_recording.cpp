// Keeping calls and making them again.
#include "kernels/call_recording.h"

#include "tensor/check.h"

namespace headroom::kernels {

CallRecording::CallRecording(Device device, const std::function<void()>& step) : device_(device) {
  check(current_ == nullptr, "[record] a step is being recorded already");
  around_ = MemoryWatch::exchange(this);
  current_ = this;
  try {
    step();
  } catch (...) {
    stop();
    throw;
  }
  stop();
}

void CallRecording::stop() {
  current_ = nullptr;
  MemoryWatch::exchange(around_);
}

void CallRecording::replay() {
  Backend& device = backend(device_);
  for (const auto& call : calls_) {
    call(device);
  }
}

void CallRecording::run(const char* name, size_t bytes, const std::function<void()>& act) {
  const auto as_seen = [name, bytes, act](MemoryWatch* watch) {
    if (watch != nullptr) {
      watch->run(name, bytes, act);
    } else {
      act();
    }
  };
  calls_.push_back([as_seen](Backend& /*device*/) { as_seen(MemoryWatch::current()); });
  as_seen(around_);
}

}  // namespace headroom::kernels
