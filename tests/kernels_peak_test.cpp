// The ceilings: no machine is known here, but what must hold on every one.
#include <gtest/gtest.h>

#include "kernels/peak.h"
#include "tensor/check.h"

namespace headroom::kernels {
namespace {

TEST(Peak, IsAPositiveRateForBothPrecisions) {
  for (const DType operands : {DType::f32, DType::bf16}) {
    const double gflops = fma_peak_gflops(operands);
    EXPECT_GT(gflops, 0.1);
    EXPECT_LT(gflops, 1e6);  // a loop that the compiler dropped would be "faster"
  }
}

// Tiles are there for bf16 alone, and where they are, they are faster than vectors.
TEST(Peak, OfTilesIsNoneOrAboveTheVectors) {
  EXPECT_EQ(amx_peak_gflops(DType::f32), 0);
  const double tiles = amx_peak_gflops(DType::bf16);
  EXPECT_TRUE(tiles == 0 || tiles > fma_peak_gflops(DType::bf16)) << tiles;
  EXPECT_LT(tiles, 1e6);
}

TEST(Peak, RefusesOtherOperands) { EXPECT_THROW(fma_peak_gflops(DType::f64), Error); }

TEST(Peak, BandwidthIsAPositiveRate) {
  const double gb_per_second = read_bandwidth_gb_s();
  EXPECT_GT(gb_per_second, 0.01);
  EXPECT_LT(gb_per_second, 1e5);
}

}  // namespace
}  // namespace headroom::kernels
