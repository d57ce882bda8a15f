// Philox and what is drawn from it. Names become stream numbers by XXH3.
#include "tensor/rng.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <numbers>

namespace headroom {

namespace {

// Constants of Philox4x32 (Salmon et al. 2011, table 2 and section 3.2).
constexpr uint32_t kMultiplier0 = 0xD2511F53U, kMultiplier1 = 0xCD9E8D57U;
constexpr uint32_t kWeyl0 = 0x9E3779B9U, kWeyl1 = 0xBB67AE85U;
constexpr int kRounds = 10;

double to_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c0;
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key[0];
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key[1];
    c3 = static_cast<uint32_t>(p0);
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

RandomStream::RandomStream(uint64_t seed, std::string_view name, uint64_t a, uint64_t b)
    : seed_(seed) {
  const uint64_t parts[3] = {XXH3_64bits(name.data(), name.size()), a, b};
  stream_ = XXH3_64bits(parts, sizeof(parts));
}

std::array<uint32_t, 4> RandomStream::block(uint64_t n) const {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  return philox4x32({low(n), high(n), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
}

double RandomStream::uniform(uint64_t n) const {
  const auto r = block(n);
  return to_unit(r[0], r[1]);
}

uint64_t RandomStream::integer(uint64_t n, uint64_t below) const {
  check(below > 0 && below <= (uint64_t{1} << 32), "[random] integers below 1 to 2^32: got {}",
        below);
  const auto r = block(n);  // the high half of a 64-bit fraction times `below`
  return (r[0] * below + ((r[1] * below) >> 32)) >> 32;
}

double RandomStream::normal(uint64_t n) const {
  const auto r = block(n);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(r[0], r[1])));  // 1 - u is never 0
  return radius * std::cos(2.0 * std::numbers::pi * to_unit(r[2], r[3]));
}

void fill_normal(Tensor& x, const RandomStream& stream, double sd) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double value = sd * stream.normal(static_cast<uint64_t>(i));
    if (x.dtype() == DType::f64) {
      x.data<double>()[i] = value;
    } else {
      x.data<float>()[i] = static_cast<float>(value);
    }
  }
}

}  // namespace headroom
