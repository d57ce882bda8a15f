// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: VPDPBUSD multiplies four
// unsigned bytes by four signed ones and adds the products to 32 bits; VDPBF16PS does so with two
// pairs of bf16 and a sum in f32.
#include "kernels/cpu/few_rows_dot.h"

#include <algorithm>
#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

namespace headroom::kernels::cpu {

namespace {

constexpr int64_t kVector = 64;  // bytes
constexpr int64_t kFloats = 16;

}  // namespace

bool ByteRows::fit(int64_t width) {
  constexpr int64_t kMostSummands = int64_t{1} << 17;  // of at most 127 * 128
  return width <= kMostSummands && __builtin_cpu_supports("avx512vnni") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0;
}

}  // namespace headroom::kernels::cpu

#if HWY_COMPILER_GCC_ACTUAL  // GCC 12 warns of what its own header leaves undefined on purpose
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")
namespace headroom::kernels::cpu {

namespace {

/// The sum of a vector's halves.
inline __m256i halves(__m512i v) {
  return _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
}
inline __m256 halves(__m512 v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

/// The sums over the lanes of four vectors.
inline __m128i totals(const __m512i (&sum)[kSide]) {
  const __m256i low = _mm256_hadd_epi32(halves(sum[0]), halves(sum[1])),
                high = _mm256_hadd_epi32(halves(sum[2]), halves(sum[3])),
                all = _mm256_hadd_epi32(low, high);
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
inline __m128 totals(const __m512 (&sum)[kSide]) {
  const __m256 low = _mm256_hadd_ps(halves(sum[0]), halves(sum[1])),
               high = _mm256_hadd_ps(halves(sum[2]), halves(sum[3])),
               all = _mm256_hadd_ps(low, high);
  return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

/// 16 numbers, or the first of them and zeros.
inline __m512 load(const float* from, __mmask16 real) { return _mm512_maskz_loadu_ps(real, from); }
inline __m512 load(const bf16* from, __mmask16 real) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(real, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

/// Of the numbers from i on, which are among the first n, as a mask: all, some or none.
template <class Mask>
inline Mask real_ones(int64_t i, int64_t n) {
  constexpr int64_t kLanes = 8 * sizeof(Mask);
  return static_cast<Mask>(n - i >= kLanes ? ~uint64_t{0}
                                           : (uint64_t{1} << std::max<int64_t>(0, n - i)) - 1);
}

}  // namespace

template <class T>
void ByteRows::set_row(const T* x, int64_t row, int64_t width) {
  constexpr int kBits = 22;
  __m512i magnitudes = _mm512_setzero_si512();  // as bits, in the same order, NaN above all
  for (int64_t i = 0; i < width; i += kFloats) {
    const __m512i bits = _mm512_castps_si512(load(x + i, real_ones<__mmask16>(i, width)));
    magnitudes =
        _mm512_max_epi32(magnitudes, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  const auto largest = std::bit_cast<float>(_mm512_reduce_max_epi32(magnitudes));
  int exponent = 0;
  std::frexp(largest, &exponent);
  int8_t* const bytes = bytes_.data<int8_t>() + row * kParts * stride_;
  std::fill_n(bytes, kParts * stride_, int8_t{0});
  if (!std::isfinite(largest)) {  // so is no product
    scales_[static_cast<size_t>(row)] = std::nan("");
    return;
  }
  scales_[static_cast<size_t>(row)] = std::ldexp(1.0, exponent - kBits);
  const __m512 up = _mm512_set1_ps(static_cast<float>(kBits - exponent));
  __m512i sums[kParts] = {};
  for (int64_t i = 0; i < width; i += kFloats) {
    const __m512 numbers = load(x + i, real_ones<__mmask16>(i, width));
    __m512i rest = _mm512_cvtps_epi32(_mm512_scalef_ps(numbers, up));
    for (int64_t part = 0; part < kParts; ++part) {
      _mm_store_si128(reinterpret_cast<__m128i*>(bytes + part * stride_ + i),
                      _mm512_cvtepi32_epi8(rest));
      const __m512i byte = _mm512_srai_epi32(_mm512_slli_epi32(rest, 24), 24);
      sums[part] = _mm512_add_epi32(sums[part], byte);
      rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, byte), 8);
    }
  }
  for (int64_t part = 0; part < kParts; ++part) {
    excess_[static_cast<size_t>(row * kParts + part)] = 128 * _mm512_reduce_add_epi32(sums[part]);
  }
}

ByteRows::ByteRows(const Tensor& x)
    : stride_((x.dim(1) + kVector - 1) / kVector * kVector),
      bytes_(Tensor::empty({x.dim(0), kParts, stride_}, DType::i8)),
      excess_(static_cast<size_t>(x.dim(0) * kParts)),
      scales_(static_cast<size_t>(x.dim(0))) {
  for (int64_t row = 0; row < x.dim(0); ++row) {
    if (x.dtype() == DType::bf16) {
      set_row(x.data<bf16>() + row * x.dim(1), row, x.dim(1));
    } else {
      set_row(x.data<float>() + row * x.dim(1), row, x.dim(1));
    }
  }
}

// Its sums are exact in any order, so rows of weights are read side by side: each vector of x meets
// kSide of them.
template <int64_t M>
void byte_products(const ByteRows& x, int64_t first, const int8_t* const (&w)[kSide], int64_t k,
                   float (&out)[M][kSide]) {
  constexpr int64_t kParts = ByteRows::kParts;
  const int8_t* from[M][kParts];
  __m512i sum[M][kParts][kSide];
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t part = 0; part < kParts; ++part) {
      from[m][part] = x.part(first + m, part);
      std::fill_n(sum[m][part], kSide, _mm512_setzero_si512());
    }
  }
  const auto rest = real_ones<__mmask64>(k / kVector * kVector, k);
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));  // w + 128, unsigned
  for (int64_t i = 0; i < k; i += kVector) {
    ask_ahead(w[0], k, i, kVector);
    __m512i bytes[M][kParts];
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t part = 0; part < kParts; ++part) {
        bytes[m][part] = _mm512_load_si512(from[m][part] + i);
      }
    }
    const __mmask64 real = i + kVector <= k ? ~__mmask64{0} : rest;
    for (int64_t r = 0; r < kSide; ++r) {
      const __m512i weights = _mm512_xor_si512(_mm512_maskz_loadu_epi8(real, w[r] + i), flip);
      for (int64_t m = 0; m < M; ++m) {
        for (int64_t part = 0; part < kParts; ++part) {
          sum[m][part][r] = _mm512_dpbusd_epi32(sum[m][part][r], weights, bytes[m][part]);
        }
      }
    }
  }
  for (int64_t m = 0; m < M; ++m) {
    __m256d all = _mm256_setzero_pd();
    for (int64_t part = kParts - 1; part >= 0; --part) {
      const __m128i excess = _mm_set1_epi32(x.excess(first + m, part));
      const __m128i exact = _mm_sub_epi32(totals(sum[m][part]), excess);
      all = _mm256_fmadd_pd(all, _mm256_set1_pd(256), _mm256_cvtepi32_pd(exact));
    }
    const __m256d scaled = _mm256_mul_pd(all, _mm256_set1_pd(x.scale(first + m)));
    _mm_storeu_ps(out[m], _mm256_cvtpd_ps(scaled));
  }
}

template void byte_products<1>(const ByteRows&, int64_t, const int8_t* const (&)[kSide], int64_t,
                               float (&)[1][kSide]);
template void byte_products<2>(const ByteRows&, int64_t, const int8_t* const (&)[kSide], int64_t,
                               float (&)[2][kSide]);

}  // namespace headroom::kernels::cpu
HWY_POP_ATTRIBUTES
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,avx512bf16")
namespace headroom::kernels::cpu {

// One row of weights after another, in the order of memory: the processor then asks for what comes
// next by itself, and brings it sooner than to rows side by side.
template <int64_t M>
void pair_products(const bf16* x, const bf16* const (&w)[kSide], int64_t k,
                   float (&out)[M][kSide]) {
  constexpr int64_t kLanes = kVector / 2, kSums = 4;  // none waits for the one before
  __m512 total[M][kSide];
  for (int64_t r = 0; r < kSide; ++r) {
    __m512 sum[M][kSums];
    for (auto& row : sum) {
      std::fill_n(row, kSums, _mm512_setzero_ps());
    }
    for (int64_t at = 0; at < k; at += kSums * kLanes) {
      for (int64_t u = 0; u < kSums; ++u) {
        const int64_t i = at + u * kLanes;
        const auto real = real_ones<__mmask32>(i, k);
        const auto weights = (__m512bh)_mm512_maskz_loadu_epi16(real, w[r] + i);
        for (int64_t m = 0; m < M; ++m) {
          const auto pairs = (__m512bh)_mm512_maskz_loadu_epi16(real, x + m * k + i);
          sum[m][u] = _mm512_dpbf16_ps(sum[m][u], weights, pairs);
        }
      }
    }
    for (int64_t m = 0; m < M; ++m) {
      total[m][r] =
          _mm512_add_ps(_mm512_add_ps(sum[m][0], sum[m][1]), _mm512_add_ps(sum[m][2], sum[m][3]));
    }
  }
  for (int64_t m = 0; m < M; ++m) {
    _mm_storeu_ps(out[m], totals(total[m]));
  }
}

template void pair_products<1>(const bf16*, const bf16* const (&)[kSide], int64_t,
                               float (&)[1][kSide]);
template void pair_products<2>(const bf16*, const bf16* const (&)[kSide], int64_t,
                               float (&)[2][kSide]);
template void pair_products<3>(const bf16*, const bf16* const (&)[kSide], int64_t,
                               float (&)[3][kSide]);
template void pair_products<4>(const bf16*, const bf16* const (&)[kSide], int64_t,
                               float (&)[4][kSide]);

}  // namespace headroom::kernels::cpu
HWY_POP_ATTRIBUTES
#if HWY_COMPILER_GCC_ACTUAL
#pragma GCC diagnostic pop
#endif
#endif
