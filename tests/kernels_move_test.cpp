// Copying columns and swapping axes: numbers arrive where the definition says, bit for bit, in
// every type.
#include "tests/kernel_operands.h"

namespace headroom::testing {
namespace {

using kernels::Backend;
using kernels::Into;

class Move : public ::testing::TestWithParam<Precision> {
 protected:
  DType type() const { return GetParam().type; }
  Backend& kernels_ = test_backend();
  std::mt19937 random_{4};
};

struct Columns {
  int64_t rows, x_width, x_column, y_width, y_column, width;
};

TEST_P(Move, CopiesColumnsAndLeavesTheOthersAlone) {
  for (const Columns& c : {Columns{1, 1, 0, 1, 0, 1},
                           {3, 17, 5, 9, 1, 8},
                           {65, 3, 2, 65, 17, 1},
                           {17, 65, 0, 70, 5, 65},
                           {900, 40, 8, 33, 1, 32}}) {
    const DeviceOperand x(type(), {c.rows, c.x_width}, random_),
        y(type(), {c.rows, c.y_width}, random_);
    const auto expected = [&](bool add) {
      return [&, add](int64_t i) {
        const int64_t row = i / c.y_width, column = i % c.y_width - c.y_column;
        const bool copied = column >= 0 && column < c.width;
        return copied ? x[row * c.x_width + c.x_column + column] + (add ? y[i] : 0) : y[i];
      };
    };
    const Tensor over = y.tensor.clone(), added = y.tensor.clone();
    kernels_.copy_columns(x.tensor, c.x_column, {over, false}, c.y_column, c.width);
    expect_elements(over, expected(false), 0, "copy_columns");
    kernels_.copy_columns(x.tensor, c.x_column, {added, true}, c.y_column, c.width);
    expect_elements(added, expected(true), GetParam().tolerance, "copy_columns added");
  }
}

TEST_P(Move, SwapsTheFirstTwoAxes) {
  for (const auto& [a, b, width] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {3, 17, 5}, {65, 3, 1}, {1, 17, 3}, {17, 1, 65}, {3, 900, 17}}) {
    const int64_t A = a, B = b, C = width;
    const DeviceOperand x(type(), {A, B, C}, random_);
    expect_output(
        type(), {B, A, C}, [&](const Into& y) { kernels_.swap_axes(x.tensor, y); },
        [&](int64_t i) {
          const int64_t row = i / (A * C), column = i / C % A;
          return x[(column * B + row) * C + i % C];
        },
        GetParam().tolerance, "swap_axes");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Move, ::testing::ValuesIn(kActivationTypes), name_of_precision);

}  // namespace
}  // namespace headroom::testing
