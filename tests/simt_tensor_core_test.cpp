// Tensor cores and asynchronous copies in the harness: what a lane holds of a matrix, written down
// from the tables of the PTX manual, and what a copy shows before and after it has been waited for.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_core.h"

namespace headroom::kernels::cuda {
namespace {

/// Small whole numbers: exact in bf16, and their sums of products in f32.
float number_of_a(int row, int k) { return static_cast<float>((3 * row + 5 * k) % 17 - 8); }
float number_of_b(int k, int column) { return static_cast<float>((7 * k + 2 * column) % 13 - 6); }
float product_at(int row, int column) {
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += number_of_a(row, k) * number_of_b(k, column);
  return sum;
}

/// The row and column of the i-th number that a lane holds, from the manual's formulas for
/// m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type").
std::array<int, 2> place_in_a(int lane, int i) {
  const bool upper_row = i == 2 || i == 3 || i == 6 || i == 7;
  return {lane / 4 + (upper_row ? 8 : 0), lane % 4 * 2 + i % 2 + (i >= 4 ? 8 : 0)};
}
std::array<int, 2> place_in_b(int lane, int i) {
  return {lane % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0), lane / 4};
}
std::array<int, 2> place_in_c(int lane, int i) {
  return {lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + i % 2};
}

constexpr int kStride = 24;  // of tiles: 16 columns and what pads them

/// Each lane writes what it got: its 4 of C where fragments were made by hand, its registers of A
/// and B where they were loaded from tiles.
struct Results {
  float c[32][4];
  uint32_t a[32][4], rows[32][2][2], columns[32][2][2];
};

void multiply_by_hand(Results* results) {
  const int lane = static_cast<int>(threadIdx.x);
  FragmentA a{};
  FragmentB b{};
  for (int i = 0; i < 8; i += 2) {
    const auto [row, k] = place_in_a(lane, i);
    a.x[i / 2] = pack_bf16(number_of_a(row, k), number_of_a(row, k + 1));
  }
  for (int i = 0; i < 4; i += 2) {
    const auto [k, column] = place_in_b(lane, i);
    b.x[i / 2] = pack_bf16(number_of_b(k, column), number_of_b(k + 1, column));
  }
  FragmentC c{{1, 1, 1, 1}};
  multiply_add(a, b, c);
  for (int i = 0; i < 4; ++i) results->c[lane][i] = c.x[i];
}

/// Of a tile whose element (row, column) is 16 row + column: exact in bf16 up to 256.
void load_fragments(Results* results) {
  const Shared<bf16> tile = shared_memory<bf16>(0, 16 * kStride);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) {
    tile[i / 16 * kStride + i % 16] = bf16(static_cast<float>(i));
  }
  __syncthreads();
  const FragmentA a = load_a(tile, kStride, 0, 0);
  FragmentB rows[2], columns[2];
  load_b_of_rows(tile, kStride, 0, 0, rows);
  load_b_of_columns(tile, kStride, 0, 0, columns);
  for (int i = 0; i < 4; ++i) results->a[lane][i] = a.x[i];
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      results->rows[lane][half][i] = rows[half].x[i];
      results->columns[lane][half][i] = columns[half].x[i];
    }
  }
}

std::array<int, 2> unpacked(uint32_t pair) {
  bf16 low, high;
  low.bits = static_cast<uint16_t>(pair);
  high.bits = static_cast<uint16_t>(pair >> 16U);
  return {static_cast<int>(static_cast<float>(low)), static_cast<int>(static_cast<float>(high))};
}

TEST(TensorCore, MultipliesFragmentsLaidOutAsTheManualSays) {
  Results results{};
  launch(multiply_by_hand, dim3(1), dim3(32), 0, &results);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, column] = place_in_c(lane, i);
      EXPECT_EQ(results.c[lane][i], 1 + product_at(row, column)) << "lane " << lane << ", " << i;
    }
  }
}

/// Lane 13 is g = 3, t = 1: with element (r, c) being 16 r + c, by hand.
TEST(TensorCore, LoadsWhatTheManualGivesALane) {
  Results results{};
  launch(load_fragments, dim3(1), dim3(32), 16 * kStride * sizeof(bf16), &results);
  using Pair = std::array<int, 2>;
  EXPECT_EQ(unpacked(results.a[13][0]), (Pair{50, 51}));    // row 3, columns 2 and 3
  EXPECT_EQ(unpacked(results.a[13][1]), (Pair{178, 179}));  // row 11
  EXPECT_EQ(unpacked(results.a[13][2]), (Pair{58, 59}));    // row 3, columns 10 and 11
  EXPECT_EQ(unpacked(results.a[13][3]), (Pair{186, 187}));
  // B(k, n) is tile(n, k): column n = 3, k = 2 and 3, then 10 and 11; the second half has n = 11.
  EXPECT_EQ(unpacked(results.rows[13][0][0]), (Pair{50, 51}));
  EXPECT_EQ(unpacked(results.rows[13][0][1]), (Pair{58, 59}));
  EXPECT_EQ(unpacked(results.rows[13][1][0]), (Pair{178, 179}));
  EXPECT_EQ(unpacked(results.rows[13][1][1]), (Pair{186, 187}));
  // B(k, n) is tile(k, n): k = 2 and 3 of column 3, then k = 10 and 11; then column 11.
  EXPECT_EQ(unpacked(results.columns[13][0][0]), (Pair{35, 51}));
  EXPECT_EQ(unpacked(results.columns[13][0][1]), (Pair{163, 179}));
  EXPECT_EQ(unpacked(results.columns[13][1][0]), (Pair{43, 59}));
  EXPECT_EQ(unpacked(results.columns[13][1][1]), (Pair{171, 187}));
}

void load_from(int row) {
  uint32_t to[4];
  load_matrices(shared_memory<bf16>(0, 16 * kStride), row, to);
}

/// PTX ISA, ldmatrix: the address of a row is a multiple of 16 bytes.
TEST(TensorCore, RefusesRowsThatBeginBetweenMultiplesOf16Bytes) {
  try {
    launch(load_from, dim3(1), dim3(32), 16 * kStride * sizeof(bf16), 4);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rows begin at multiples of 16 bytes, got offset 8"),
              std::string::npos)
        << error.what();
  }
}

struct CopyTest {
  const bf16* from;
  float* to;
  bool waits;
  int at;
};

void copy_eight(CopyTest test) {
  const Shared<bf16> tile = shared_memory<bf16>(0, 32);
  copy_async(tile, test.at, test.from);
  commit_copies();
  copy_async(tile, 16, nullptr);
  commit_copies();
  if (test.waits) wait_for_copies<1>();
  for (int i = 0; i < 8; ++i) test.to[i] = static_cast<float>(static_cast<bf16>(tile[i]));
  wait_for_copies<0>();
  for (int i = 8; i < 16; ++i) test.to[i] = static_cast<float>(static_cast<bf16>(tile[8 + i]));
}

class AsyncCopy : public ::testing::Test {
 protected:
  AsyncCopy() {
    for (int i = 0; i < 16; ++i) from_[static_cast<size_t>(i)] = bf16(static_cast<float>(i + 1));
  }
  void run(int offset, bool waits, int at) {
    launch(copy_eight, dim3(1), dim3(1), 64,
           CopyTest{from_.data() + offset, to_.data(), waits, at});
  }
  std::string error_of(int offset, bool waits, int at) {
    try {
      run(offset, waits, at);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  alignas(16) std::array<bf16, 16> from_;
  std::array<float, 16> to_{};
};

TEST_F(AsyncCopy, IsThereOnceItHasBeenWaitedFor) {
  run(0, true, 0);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(to_[i], static_cast<float>(i + 1));
    EXPECT_EQ(to_[8 + i], 0.0F);  // from nowhere: zeros
  }
}

TEST_F(AsyncCopy, IsNotThereBefore) {
  EXPECT_NE(error_of(0, false, 0), "none");  // a read of what nobody has written
}

TEST_F(AsyncCopy, RefusesEndsThatAreNotMultiplesOf16Bytes) {
  EXPECT_NE(error_of(1, true, 0).find("multiples of 16 bytes"), std::string::npos);
  EXPECT_NE(error_of(0, true, 4).find("multiples of 16 bytes"), std::string::npos);
}

}  // namespace
}  // namespace headroom::kernels::cuda
