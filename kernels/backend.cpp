// The one place that knows which backends this build has.
#include "kernels/backend.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/traced_backend.h"

namespace headroom::kernels {

Backend& backend(Device device) {
  static cpu::CpuBackend cpu;
  static TracedBackend traced_cpu(cpu);
  check_input(device == kCpu, "[device] this build has no backend for {}; it has: cpu", device);
  if (Trace::current() != nullptr) [[unlikely]] {
    return traced_cpu;
  }
  return cpu;
}

}  // namespace headroom::kernels
