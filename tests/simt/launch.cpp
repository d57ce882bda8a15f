// Launches of the CUDA runtime's double: what a device refuses, and what a kernel that ran did
// wrong.
#include "tests/simt/launch.h"

#include <cuda_runtime.h>

#include <map>

#include "tests/simt/host_keeps_out.h"
#include "tests/simt/memory.h"
#include "tests/simt/scheduler.h"
#include "tests/simt/stream.h"

namespace simt {
namespace {

/// CUDA C++ Programming Guide, "Shared Memory" of each compute capability: more than 48 KiB are
/// only for kernels that ask. 8.6 and 8.9 have the fewest, 99 KiB, and run what is made for 8.0.
constexpr size_t kMostWithoutAsking = size_t{48} << 10;
constexpr size_t kMostShared = size_t{99} << 10;

struct Launches {
  std::map<const void*, size_t> shared_limits;  // of kernels that asked
  std::string report;
  unsigned count = 0;
};
Launches& launches() {
  static Launches instance;
  return instance;
}

/// Limits of a launch: CUDA C++ Programming Guide, "Compute Capabilities", technical
/// specifications (1024 threads, z up to 64; grids of 2^31 - 1, 65535, 65535).
bool is_valid(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const auto asked = launches().shared_limits.find(kernel);
  const size_t most = asked == launches().shared_limits.end() ? kMostWithoutAsking : asked->second;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffU && grid.y <= 65535 &&
         grid.z <= 65535 && block.x > 0 && block.y > 0 && block.z > 0 && block.z <= 64 &&
         static_cast<size_t>(block.x) * block.y * block.z <= 1024 &&
         config.dynamicSmemBytes <= most;
}

}  // namespace

const std::string& launch_report() { return launches().report; }

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   const std::function<void()>& thread) {
  if (!is_valid(config, kernel)) {
    return note(cudaErrorInvalidConfiguration);
  }
  return run_in_order(config.stream, [config, thread] {
    Launches& l = launches();
    const DeviceAtWork at_work;
    l.report = run(config.gridDim, config.blockDim, config.dynamicSmemBytes, thread, l.count++);
    if (l.report.empty()) {
      l.report = broken_guards();
    }
    return l.report.empty() ? cudaSuccess : note(cudaErrorLaunchFailure);
  });
}

}  // namespace simt

/// cudaFuncSetAttribute(): "The sum of this value and the function attribute sharedSizeBytes cannot
/// exceed the device attribute cudaDevAttrMaxSharedMemoryPerBlockOptin."
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > simt::kMostShared) {
    return simt::note(cudaErrorInvalidValue);
  }
  simt::launches().shared_limits[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
