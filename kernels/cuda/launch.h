// The one way a kernel is started.
#pragma once

#include <cuda_runtime.h>

#include <source_location>
#include <utility>

#include "kernels/cuda/runtime.h"
#include "tensor/check.h"

namespace headroom::kernels::cuda {

/// A grid, and the line that launches it: an error has no better name for a kernel.
struct Grid {
  dim3 size;
  std::source_location where;
  Grid(dim3 blocks, std::source_location place = std::source_location::current())
      : size(blocks), where(place) {}
};

inline void check_launch(cudaError_t error, const std::source_location& where) {
  check(error == cudaSuccess, "[cuda] the kernel launched by {} ({}:{}) failed: {}",
        where.function_name(), where.file_name(), where.line(), cudaGetErrorString(error));
}

/// Runs kernel(args...) with `shared_bytes` of dynamic shared memory per block. A grid without
/// blocks, which the runtime would refuse, is no work and no error.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Grid& grid, dim3 block, size_t shared_bytes,
            Args&&... args) {
  // What a kernel may have without asking: CUDA C++ Programming Guide, "Shared Memory" of each
  // compute capability.
  constexpr size_t kWithoutAsking = size_t{48} << 10;
  if (grid.size.x == 0 || grid.size.y == 0 || grid.size.z == 0) {
    return;
  }
  if (shared_bytes > kWithoutAsking) {
    check_launch(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared_bytes)),
                 grid.where);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.size;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream();
  check_launch(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), grid.where);
}

}  // namespace headroom::kernels::cuda
