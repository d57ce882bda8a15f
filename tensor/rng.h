// Counter-based random numbers: the n-th number of a stream is a function of (seed, stream, n), so
// that no consumer can shift another's numbers. Philox4x32-10, Salmon et al. 2011, "Parallel random
// numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace headroom {

/// The generator itself: ten rounds over a 128-bit counter and a 64-bit key; constants of table 2
/// and section 3.2. Constant expressions, here and in block(), are what a GPU's code may call too.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53U, kMultiplier1 = 0xCD9E8D57U;
  constexpr uint32_t kWeyl0 = 0x9E3779B9U, kWeyl1 = 0xBB67AE85U;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

class RandomStream {
 public:
  /// A stream of its own for each (seed, name, a, b): the name says what the numbers are for, a and
  /// b are for example a step and a sequence.
  RandomStream(uint64_t seed, std::string_view name, uint64_t a = 0, uint64_t b = 0);

  /// Four independent 32-bit numbers, the same for the same n.
  constexpr std::array<uint32_t, 4> block(uint64_t n) const {
    return philox4x32({low(n), high(n), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
  }
  /// Uniform in [0, 1) with 53 bits; in {0, ..., below - 1}; and standard normal (Box-Muller).
  double uniform(uint64_t n) const;
  uint64_t integer(uint64_t n, uint64_t below) const;
  double normal(uint64_t n) const;

 private:
  static constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  static constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  uint64_t seed_;
  uint64_t stream_;
};

/// Fills an f32 or f64 tensor on the host with normal(0, sd); element i is the stream's i-th
/// number.
void fill_normal(Tensor& x, const RandomStream& stream, double sd);

}  // namespace headroom
