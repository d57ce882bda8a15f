// Writing keys and values into a cache on a GPU.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Backend::store_kv.
void store_kv(const Tensor& x, Tensor& to, const KVCode& code, int64_t slot);

}  // namespace headroom::kernels::cuda
