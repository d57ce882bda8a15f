// Rows times narrow weights by x86's own dot products, which Highway of Debian 12 doesn't have: the
// weights meet the activations as they are stored. Widened first, they are read from the caches at
// 77 (bf16) and 39 GB/s (int8) by two cores of a Zen 4, and slow down what fast memory delivers.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace headroom::kernels::cpu {

/// Rows of weights that are read side by side: as many independent sums as hide the latency of a
/// multiply-add, and their totals are one vector of four.
inline constexpr int64_t kSide = 4;

/// Asks memory for what is read after kSide rows of weights, which lie one after another and are
/// followed by it, while `bytes` bytes from `at` on of each row are read: the processor does not
/// foresee so many streams. Rows of which the first cache doesn't hold so many go to the second.
inline void ask_ahead(const void* first_row, int64_t row_bytes, int64_t at, int64_t bytes) {
  constexpr int64_t kLine = 64, kFurther = 4096, kFirstCache = 12288;
  const char* next = static_cast<const char*>(first_row) + kSide * (row_bytes + at) + kFurther;
  const bool fit = kSide * row_bytes <= kFirstCache;
  for (int64_t line = 0; kSide * at % kLine == 0 && line < kSide * bytes; line += kLine) {
    if (fit) {
      __builtin_prefetch(next + line, 0, 3);
    } else {
      __builtin_prefetch(next + line, 0, 2);
    }
  }
}

/// Rows of activations as sums of signed bytes: x = 2^e (low + 2^8 middle + 2^16 high), an integer
/// of 22 bits and a power of two for each row. A number of bf16 is exact unless it is 2^14 times
/// smaller than its row's largest; any other is off by 2^-22 of that at most.
class ByteRows {
 public:
  /// Whether this processor multiplies bytes (AVX512_VNNI) and the sums of such rows fit 32 bits.
  static bool fit(int64_t width);

  ByteRows() = default;
  explicit ByteRows(const Tensor& x);  // (M, k) in f32 or bf16

  /// Byte `part` (0: low) of each number of a row, and zeros up to a whole vector.
  const int8_t* part(int64_t row, int64_t part) const {
    return bytes_.data<int8_t>() + (row * kParts + part) * stride_;
  }
  /// 128 times the sum of those: weights are multiplied as w + 128.
  int32_t excess(int64_t row, int64_t part) const {
    return excess_[static_cast<size_t>(row * kParts + part)];
  }
  double scale(int64_t row) const { return scales_[static_cast<size_t>(row)]; }  // 2^e

  static constexpr int64_t kParts = 3;

 private:
  template <class T>
  void set_row(const T* x, int64_t row, int64_t width);

  int64_t stride_ = 0;
  Tensor bytes_;  // (M, kParts, stride)
  std::vector<int32_t> excess_;
  std::vector<double> scales_;
};

/// out[m][r] = x[first + m] . w[r], sums exact.
template <int64_t M>
void byte_products(const ByteRows& x, int64_t first, const int8_t* const (&w)[kSide], int64_t k,
                   float (&out)[M][kSide]);
inline constexpr int64_t kMostByteRows = 2;  // M at most: what the registers hold

/// out[m][r] = x[m] . w[r] for rows of x that are k apart. Only where has_native_bf16() is true.
template <int64_t M>
void pair_products(const bf16* x, const bf16* const (&w)[kSide], int64_t k, float (&out)[M][kSide]);
inline constexpr int64_t kMostPairRows = 4;

}  // namespace headroom::kernels::cpu
