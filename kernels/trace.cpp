// Recording phases and kernels.
#include "kernels/trace.h"

#include <atomic>
#include <cstring>

#include "tensor/check.h"

namespace headroom::kernels {

namespace {

std::atomic<bool> recording = false;

PhaseTotal& find_phase(PhaseTotal& in, const char* name) {
  for (const auto& phase : in.phases) {
    if (std::strcmp(phase->name, name) == 0) {
      return *phase;
    }
  }
  in.phases.push_back(std::make_unique<PhaseTotal>());
  in.phases.back()->name = name;
  return *in.phases.back();
}

KernelTotal& find_kernel(PhaseTotal& in, const char* name) {
  for (KernelTotal& kernel : in.kernels) {  // nearly always the very same literal
    if (kernel.name == name) {
      return kernel;
    }
  }
  for (KernelTotal& kernel : in.kernels) {
    if (std::strcmp(kernel.name, name) == 0) {
      return kernel;
    }
  }
  return in.kernels.emplace_back(KernelTotal{name});
}

}  // namespace

std::string to_string(const Operands& operands) {
  if (operands.count == 0) {
    return {};
  }
  std::string text;
  for (size_t i = 0; i < operands.count; ++i) {
    const bool lettered = operands.letters != nullptr;
    text += i == 0 ? "" : lettered ? " " : "x";
    text += lettered ? fmt::format("{} {}", operands.letters[i], operands.sizes[i])
                     : fmt::format("{}", operands.sizes[i]);
  }
  text += fmt::format(" {}", name_of(operands.dtype));
  return operands.note == nullptr ? text : fmt::format("{} {}", text, operands.note);
}

Trace::Trace(size_t most_events) : most_events_(most_events) {
  events_.resize(most_events);  // so that no page is new to the system while kernels are timed
  events_.clear();
  open_.push_back({&root_, 0});
  check(!recording.exchange(true), "[trace] another recording is under way");
  MemoryWatch::exchange(this);
  current_ = this;
}

Trace::~Trace() {
  current_ = nullptr;
  MemoryWatch::exchange(nullptr);
  recording = false;
}

void Trace::run(const char* name, size_t bytes, const std::function<void()>& act) {
  const Kernel kernel(name,
                      {.sizes = {static_cast<int64_t>(bytes)}, .count = 1, .dtype = DType::i8});
  act();
}

int64_t Trace::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

const PhaseTotal& Trace::totals() {
  root_.ns = now();
  return root_;
}

void Trace::enter(const char* name) {
  PhaseTotal& phase = find_phase(*open_.back().phase, name);
  open_.push_back({&phase, now()});
}

void Trace::leave() {
  const int64_t end = now();
  const Open open = open_.back();
  open_.pop_back();
  ++open.phase->calls;
  open.phase->ns += end - open.begin_ns;
  keep({open.phase->name, false, open.begin_ns, end - open.begin_ns, {}});
}

void Trace::ran(const char* name, int64_t begin_ns, const Operands& operands) {
  const int64_t duration = now() - begin_ns;
  in_kernel_ = false;
  KernelTotal& kernel = find_kernel(*open_.back().phase, name);
  ++kernel.calls;
  kernel.ns += duration;
  keep({name, true, begin_ns, duration, operands});
}

void Trace::keep(const TraceEvent& event) {
  if (events_.size() < most_events_) {
    events_.push_back(event);
  } else {
    ++dropped_;
  }
}

void Kernel::begin(const char* name, const Operands& operands) {
  if (trace_->in_kernel_) {
    trace_ = nullptr;
    return;
  }
  trace_->in_kernel_ = true;
  name_ = name;
  operands_ = operands;
  begin_ns_ = trace_->now();
}

}  // namespace headroom::kernels
