// The GPU of this process, for code that knows no CUDA: a build without it has the same functions
// (kernels/cuda_absent.cpp).
#pragma once

#include <string>

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Makes GPU `index` the one that this process computes on, the first time, and installs its
/// allocator. Throws InputError where this build or this machine has none, or another one was asked
/// for before.
Backend& device_backend(int index);
/// GPUs that this process can use; 0 in a build without CUDA.
int device_count();
/// "cuda (2 GPUs, runtime 13.0, cuBLASLt 13.1.0, cuDNN 9.19.0)", or "" in a build without it.
std::string device_version();

}  // namespace headroom::kernels::cuda
