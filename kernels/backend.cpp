// The one place that knows which backends this build has.
#include "kernels/backend.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/traced_backend.h"

namespace headroom::kernels {

namespace {

Backend& cpu_backend() {
  static cpu::CpuBackend cpu;
  static TracedBackend traced(cpu);
  if (Trace::current() != nullptr) [[unlikely]] {
    return traced;
  }
  return cpu;
}

Backend& cuda_backend(int index) {
  Backend& cuda = cuda::device_backend(index);
  static TracedBackend traced(cuda);
  if (Trace::current() != nullptr) [[unlikely]] {
    return traced;
  }
  return cuda;
}

}  // namespace

std::unique_ptr<Recording> Backend::record(const std::function<void()>& /*step*/) {
  throw Error("[record] this device records no steps");
}

Backend& backend(Device device) {
  return device == kCpu ? cpu_backend() : cuda_backend(device.index);
}

std::vector<std::string> backend_versions() {
  std::vector<std::string> versions = {"cpu"};
  if (std::string cuda = cuda::device_version(); !cuda.empty()) {
    versions.push_back(std::move(cuda));
  }
  return versions;
}

}  // namespace headroom::kernels
