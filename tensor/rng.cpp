// Philox and what is drawn from it. Names become stream numbers by XXH3.
#include "tensor/rng.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <numbers>

namespace headroom {

namespace {

double to_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view name, uint64_t a, uint64_t b)
    : seed_(seed) {
  const uint64_t parts[3] = {XXH3_64bits(name.data(), name.size()), a, b};
  stream_ = XXH3_64bits(parts, sizeof(parts));
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
