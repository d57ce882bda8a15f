// Recording phases and kernels.
#include "kernels/trace.h"

#include <atomic>
#include <cstring>

#include "tensor/check.h"

namespace headroom::kernels {

namespace {

std::atomic<bool> recording = false;

/// Passes everything on; copies and fills with zeros are recorded as kernels.
class TracedAllocator final : public Allocator {
 public:
  explicit TracedAllocator(Allocator& inner) : inner_(inner) {}
  void* allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void free(void* memory, size_t bytes) noexcept override { inner_.free(memory, bytes); }
  void zero(void* memory, size_t bytes) override {
    const Kernel kernel("zero", bytes_of(bytes));
    inner_.zero(memory, bytes);
  }
  void copy(void* to, Device to_device, const void* from, Device from_device,
            size_t bytes) override {
    const Kernel kernel("copy", bytes_of(bytes));
    inner_.copy(to, to_device, from, from_device, bytes);
  }
  size_t bytes_in_use() const override { return inner_.bytes_in_use(); }
  size_t peak_bytes() const override { return inner_.peak_bytes(); }
  size_t bytes_reserved() const override { return inner_.bytes_reserved(); }

 private:
  static Operands bytes_of(size_t bytes) {
    return {.sizes = {static_cast<int64_t>(bytes)}, .count = 1, .dtype = DType::i8};
  }
  Allocator& inner_;
};

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

Trace::Trace(size_t most_events) : most_events_(most_events), allocator_before_(allocator(kCpu)) {
  events_.resize(most_events);  // so that no page is new to the system while kernels are timed
  events_.clear();
  open_.push_back({&root_, 0});
  allocator_ = std::make_unique<TracedAllocator>(allocator_before_);
  check(!recording.exchange(true), "[trace] another recording is under way");
  install_allocator(Device::Type::cpu, *allocator_);
  current_ = this;
}

Trace::~Trace() {
  current_ = nullptr;
  install_allocator(Device::Type::cpu, allocator_before_);
  recording = false;
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
