// The generator against its published vectors, and the streams against chance. Every bound is wide
// enough for chance (five standard errors, or a probability below 1e-6) and the numbers are fixed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tensor/rng.h"

namespace headroom {
namespace {

using Block = std::array<uint32_t, 4>;

std::vector<double> normals(const RandomStream& stream, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = stream.normal(i);
  return values;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

/// Chi-squared of counts that should all be equal, in standard deviations from its mean.
double unevenness(const std::vector<int>& counts, double total) {
  const double expected = total / static_cast<double>(counts.size());
  double chi2 = 0;
  for (const int count : counts) chi2 += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi2 - freedom) / std::sqrt(2 * freedom);
}

// The three "philox4x32 10" lines of kat_vectors in the Random123 distribution (Salmon et al.
// 2011).
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, EachPartOfItsKeyGivesAnotherStream) {
  std::set<Block> seen;
  int made = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (const char* name : {"", "wq", "wk", "wq.0"}) {
      for (const uint64_t a : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
        for (const uint64_t b : {0, 1, 2}) {
          for (const uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
            seen.insert(RandomStream(seed, name, a, b).block(n));
            ++made;
          }
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), made);
}

TEST(RandomStream, NumberNDependsOnNothingAskedBefore) {
  const RandomStream one(7, "w"), other(7, "w");
  const double tenth = one.normal(10);
  for (uint64_t n = 0; n < 10; ++n) other.normal(n);
  EXPECT_EQ(other.normal(10), tenth);
}

TEST(RandomStream, NeighbouringStreamsAreUncorrelated) {
  constexpr size_t kCount = 20000;
  const double bound = 5 / std::sqrt(double{kCount});
  const auto base = normals(RandomStream(1, "w", 3, 4), kCount);
  for (const RandomStream& other :
       {RandomStream(0, "w", 3, 4), RandomStream(2, "w", 3, 4), RandomStream(1, "v", 3, 4),
        RandomStream(1, "w", 4, 4), RandomStream(1, "w", 3, 5), RandomStream(1, "w", 4, 3)}) {
    EXPECT_LT(std::fabs(correlation(base, normals(other, kCount))), bound);
  }
  const std::vector<double> early(base.begin(), base.end() - 1), late(base.begin() + 1, base.end());
  EXPECT_LT(std::fabs(correlation(early, late)), bound);
}

TEST(RandomStream, UniformIsEvenOnTheHalfOpenUnitInterval) {
  constexpr int kCount = 64000;
  const RandomStream stream(5, "u");
  std::vector<int> bins(64);
  for (int n = 0; n < kCount; ++n) {
    const double u = stream.uniform(static_cast<uint64_t>(n));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++bins[static_cast<size_t>(u * 64)];
  }
  EXPECT_LT(std::fabs(unevenness(bins, kCount)), 5);
}

TEST(RandomStream, UniformHas53Bits) {
  const RandomStream stream(5, "u");
  bool lowest = false;
  for (uint64_t n = 0; n < 64; ++n) {
    const double scaled = stream.uniform(n) * 0x1.0p53;
    EXPECT_EQ(scaled, std::floor(scaled));
    lowest = lowest || std::fmod(scaled, 2) == 1;
  }
  EXPECT_TRUE(lowest);
}

TEST(RandomStream, IntegersAreEvenBelowTheirBound) {
  constexpr int kCount = 29000;
  const RandomStream stream(5, "i");
  std::vector<int> bins(29);
  for (int n = 0; n < kCount; ++n) {
    const uint64_t value = stream.integer(static_cast<uint64_t>(n), bins.size());
    ASSERT_LT(value, bins.size());
    ++bins[value];
  }
  EXPECT_LT(std::fabs(unevenness(bins, kCount)), 5);
  EXPECT_EQ(stream.integer(0, 1), 0U);
  EXPECT_THROW(stream.integer(0, 0), Error);
}

TEST(RandomStream, LargeIntegersReachBothEnds) {
  const RandomStream stream(5, "i");
  const uint64_t below = uint64_t{1} << 32;
  uint64_t least = below, most = 0;
  for (uint64_t n = 0; n < 10000; ++n) {
    const uint64_t value = stream.integer(n, below);
    ASSERT_LT(value, below);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  // The chance that none of 10000 is within 0.15 % of an end is e^-15.
  EXPECT_LT(static_cast<double>(least), 0.0015 * static_cast<double>(below));
  EXPECT_GT(static_cast<double>(most), 0.9985 * static_cast<double>(below));
}

TEST(RandomStream, NormalHasTheNormalDistribution) {
  constexpr size_t kCount = 100000;
  constexpr double n = kCount;
  std::vector<double> x = normals(RandomStream(3, "w"), kCount);
  double mean = 0, square = 0, cube = 0, fourth = 0;
  for (const double v : x) {
    mean += v / n;
    square += v * v / n;
    cube += v * v * v / n;
    fourth += v * v * v * v / n;
  }
  EXPECT_LT(std::fabs(mean), 5 * std::sqrt(1 / n));
  EXPECT_LT(std::fabs(square - 1), 5 * std::sqrt(2 / n));
  EXPECT_LT(std::fabs(cube), 5 * std::sqrt(15 / n));
  EXPECT_LT(std::fabs(fourth - 3), 5 * std::sqrt(96 / n));
  // Kolmogorov-Smirnov: sqrt(n) times the distance passes 2.7 with probability 1e-6.
  std::ranges::sort(x);
  double distance = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double below = 0.5 * std::erfc(-x[i] / std::sqrt(2.0));
    distance = std::max(
        {distance, below - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - below});
  }
  EXPECT_LT(distance * std::sqrt(n), 2.7);
}

TEST(RandomStream, SeedZeroIsASeed) {
  constexpr size_t kCount = 20000;
  const auto zero = normals(RandomStream(0, "w"), kCount);
  EXPECT_EQ(zero, normals(RandomStream(0, "w"), kCount));
  EXPECT_NE(zero, normals(RandomStream(1, "w"), kCount));
  double square = 0;
  for (const double v : zero) square += v * v / kCount;
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0 / kCount));
}

TEST(FillNormal, ALargerTensorOfTheSameNameBeginsWithTheSameRows) {
  const RandomStream stream(9, "k_proj.weight");
  Tensor small = Tensor::empty({3, 5}, DType::f32), large = Tensor::empty({8, 5}, DType::f32);
  fill_normal(small, stream, 0.02);
  fill_normal(large, stream, 0.02);
  EXPECT_EQ(large.rows(0, 3).to_vector<float>(), small.to_vector<float>());
  EXPECT_NE(large.rows(3, 6).to_vector<float>(), small.to_vector<float>());
}

TEST(FillNormal, ScalesAndRoundsOnce) {
  const RandomStream stream(9, "w");
  Tensor narrow = Tensor::empty({1000}, DType::f32), wide = Tensor::empty({1000}, DType::f64);
  fill_normal(narrow, stream, 0.5);
  fill_normal(wide, stream, 0.5);
  double square = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(narrow.data<float>()[i], static_cast<float>(wide.data<double>()[i]));
    square += wide.data<double>()[i] * wide.data<double>()[i] / 1000;
  }
  EXPECT_NEAR(square, 0.25, 0.25 * 5 * std::sqrt(2.0 / 1000));
}

TEST(FillNormal, RefusesOtherTypes) {
  for (const DType type : {DType::bf16, DType::f16, DType::i8, DType::i32}) {
    Tensor x = Tensor::zeros({4}, type);
    EXPECT_THROW(fill_normal(x, RandomStream(1, "w"), 1), Error) << name_of(type);
  }
}

}  // namespace
}  // namespace headroom
