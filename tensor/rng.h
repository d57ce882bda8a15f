// Counter-based random numbers: the n-th number of a stream is a function of (seed, stream, n), so
// that no consumer can shift another's numbers. Philox4x32-10, Salmon et al. 2011, "Parallel random
// numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace headroom {

/// The generator itself: ten rounds over a 128-bit counter and a 64-bit key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

class RandomStream {
 public:
  /// A stream of its own for each (seed, name, a, b): the name says what the numbers are for, a and
  /// b are for example a step and a sequence.
  RandomStream(uint64_t seed, std::string_view name, uint64_t a = 0, uint64_t b = 0);

  /// Four independent 32-bit numbers, the same for the same n.
  std::array<uint32_t, 4> block(uint64_t n) const;
  /// Uniform in [0, 1) with 53 bits; in {0, ..., below - 1}; and standard normal (Box-Muller).
  double uniform(uint64_t n) const;
  uint64_t integer(uint64_t n, uint64_t below) const;
  double normal(uint64_t n) const;

 private:
  uint64_t seed_;
  uint64_t stream_;
};

/// Fills an f32 or f64 tensor on the host with normal(0, sd); element i is the stream's i-th
/// number.
void fill_normal(Tensor& x, const RandomStream& stream, double sd);

}  // namespace headroom
