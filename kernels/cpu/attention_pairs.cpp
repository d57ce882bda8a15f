// The loop of product() in attention-inl.h with the bf16 dot product of x86.
#include "kernels/cpu/attention_pairs.h"

#include "kernels/threads.h"

namespace headroom::kernels::cpu {

bool& attends_in_pairs() {
  static bool answer = has_native_bf16() && !has_amx_bf16();
  return answer;
}

}  // namespace headroom::kernels::cpu

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bf16")
namespace headroom::kernels::cpu {

template <bool kColumns, bool kAdd, int kVectors>
void pair_product(int64_t m, int64_t depth, const Pair* a, int64_t lda, const Pair* b, int64_t ldb,
                  float* c, int64_t ldc) {
  constexpr int kHeight = 8, kLanes = 16;
  for (int64_t i = 0; i < m; i += kHeight) {
    const Pair* ai = a + (kColumns ? i : i * lda);
    float* ci = c + i * ldc;
    __m512 sum[kHeight][kVectors];
    for (int u = 0; u < kHeight; ++u) {
      for (int v = 0; v < kVectors; ++v) {
        sum[u][v] = kAdd ? _mm512_load_ps(ci + u * ldc + v * kLanes) : _mm512_setzero_ps();
      }
    }
    for (int64_t k = 0; k < depth; ++k) {
      __m512i bk[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        bk[v] = _mm512_load_si512(b + k * ldb + v * kLanes);
      }
      for (int u = 0; u < kHeight; ++u) {
        const Pair factor = kColumns ? ai[k * lda + u] : ai[u * lda + k];
        const __m512i factors = _mm512_set1_epi32(static_cast<int>(factor));
        for (int v = 0; v < kVectors; ++v) {
          sum[u][v] = _mm512_dpbf16_ps(sum[u][v], (__m512bh)bk[v], (__m512bh)factors);
        }
      }
    }
    for (int u = 0; u < kHeight; ++u) {
      for (int v = 0; v < kVectors; ++v) {
        _mm512_store_ps(ci + u * ldc + v * kLanes, sum[u][v]);
      }
    }
  }
}

// Scores; what they add to outputs and to dq; what they add to dk and dv.
template void pair_product<false, false, 2>(int64_t, int64_t, const Pair*, int64_t, const Pair*,
                                            int64_t, float*, int64_t);
template void pair_product<true, true, 2>(int64_t, int64_t, const Pair*, int64_t, const Pair*,
                                          int64_t, float*, int64_t);
template void pair_product<false, true, 2>(int64_t, int64_t, const Pair*, int64_t, const Pair*,
                                           int64_t, float*, int64_t);
template void pair_product<false, true, 1>(int64_t, int64_t, const Pair*, int64_t, const Pair*,
                                           int64_t, float*, int64_t);

}  // namespace headroom::kernels::cpu
HWY_POP_ATTRIBUTES
#endif
