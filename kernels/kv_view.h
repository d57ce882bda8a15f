// Building the block tables that attention reads.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels {

/// The view of keys (B, S, K, Dk) and values (B, S, K, Dv) that lie densely in memory, for T
/// queries per sequence that are the last T of the S positions.
KVView dense_view(const Tensor& k, const Tensor& v, int64_t T);

/// What tables on the host say of a pass with T query rows per sequence (KVView::dense).
DenseKeys dense_keys(const Tensor& slots, const Tensor& starts, const Tensor& lengths,
                     const Tensor& counts, int64_t T);

}  // namespace headroom::kernels
