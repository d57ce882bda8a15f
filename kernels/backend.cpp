// The one place that knows which backends this build has.
#include "kernels/backend.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/watched_backend.h"

namespace headroom::kernels {

namespace {

bool is_watched() { return Trace::current() != nullptr || CallRecording::current() != nullptr; }

Backend& cpu_backend() {
  static cpu::CpuBackend cpu;
  static WatchedBackend watched(cpu, kCpu);
  if (is_watched()) [[unlikely]] {
    return watched;
  }
  return cpu;
}

Backend& cuda_backend(int index) {
  Backend& cuda = cuda::device_backend(index);
  static WatchedBackend watched(cuda, {Device::Type::cuda, index});
  if (is_watched()) [[unlikely]] {
    return watched;
  }
  return cuda;
}

}  // namespace

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
