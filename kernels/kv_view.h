// Building the block tables that attention reads.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels {

/// The tables of B sequences of S positions that lie one after another in memory, for T queries per
/// sequence that are the last T of them: a view without keys and values, the same for every layer.
KVView dense_tables(int64_t B, int64_t S, int64_t T, Device device);
/// Such tables with the keys (B, S, K, Dk) and values (B, S, K, Dv) of a layer.
KVView dense_view(const KVView& tables, const Tensor& k, const Tensor& v);
/// Both, for T queries per sequence.
KVView dense_view(const Tensor& k, const Tensor& v, int64_t T);

/// What tables on the host say of a pass with T query rows per sequence (KVView::dense).
DenseKeys dense_keys(const Tensor& slots, const Tensor& starts, const Tensor& lengths,
                     const Tensor& counts, int64_t T);

}  // namespace headroom::kernels
