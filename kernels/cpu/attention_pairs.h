// Products of small tiles of bf16 by the processor's own dot product (AVX512_BF16), which Highway
// of Debian 12 doesn't have. It multiplies two neighbours at once and adds both to a sum in f32.
#pragma once

#include <cstdint>

namespace headroom::kernels::cpu {

/// Two neighbouring numbers in bf16, the first in the lower half.
using Pair = uint32_t;

/// Whether attention on bf16 multiplies pairs rather than numbers widened to f32: where the
/// processor has the product and it is the faster way. Tests take both ways.
bool& attends_in_pairs();

/// product() of attention-inl.h on pairs along the axis that is summed over: c[i][:] (+)= sum over
/// the pairs k of a(i, k) . b[k][:] for i < m, m rounded up to 8, with a(i, k) = a[i * lda + k], or
/// a[k * lda + i] with kColumns. Rows of b and c are kVectors vectors of 16, aligned. Only where
/// has_native_bf16() is true.
template <bool kColumns, bool kAdd, int kVectors>
void pair_product(int64_t m, int64_t depth, const Pair* a, int64_t lda, const Pair* b, int64_t ldb,
                  float* c, int64_t ldc);

}  // namespace headroom::kernels::cpu
