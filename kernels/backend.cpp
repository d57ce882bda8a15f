// The one place that knows which backends this build has.
#include "kernels/backend.h"

#include "kernels/cpu/cpu_backend.h"

namespace headroom::kernels {

Backend& backend(Device device) {
  static cpu::CpuBackend cpu;
  check_input(device == kCpu, "[device] this build has no backend for {}; it has: cpu",
              name_of(device));
  return cpu;
}

}  // namespace headroom::kernels
