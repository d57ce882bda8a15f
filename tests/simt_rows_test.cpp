// The GPU's kernels over rows in the harness, in every type and at odd sizes, against the
// definitions in float64.
#include "kernels/cuda/rows.h"
#include "tests/kernel_operands.h"
#include "tests/simt/device_memory.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;
using kernels::Direction;
using kernels::Into;
using kernels::RopeStyle;

class Rows : public ::testing::TestWithParam<Precision> {
 protected:
  DType type() const { return GetParam().type; }
  double bound() const { return GetParam().tolerance; }
  Operand draw(const Shape& shape, DType type) {
    Operand x(type, shape, random_);
    x.tensor = on_device(x.tensor);
    return x;
  }
  Operand draw(const Shape& shape) { return draw(shape, type()); }
  std::mt19937 random_{4};
};

TEST_P(Rows, ColumnsAxesAndBias) {
  const Operand x = draw({5, 37}), y = draw({5, 23});
  for (const bool add : {false, true}) {
    const Tensor out = on_device(y.tensor);
    cuda::copy_columns(x.tensor, 11, {out, add}, 3, 17);
    expect_elements(
        out,
        [&](int64_t i) {
          const int64_t row = i / 23, column = i % 23;
          const bool copied = column >= 3 && column < 20;
          return copied ? x[row * 37 + column + 8] + (add ? y[i] : 0) : y[i];
        },
        bound(), "copy_columns");
  }
  const Operand cube = draw({3, 5, 7}), before = draw({5, 3, 7});
  for (const bool add : {false, true}) {
    const Tensor out = on_device(before.tensor);
    cuda::swap_axes(cube.tensor, {out, add});
    expect_elements(
        out,
        [&](int64_t i) {
          const int64_t b = i / 21, a = i / 7 % 3;
          return cube[(a * 5 + b) * 7 + i % 7] + (add ? before[i] : 0);
        },
        bound(), "swap_axes");
  }
  const Operand bias = draw({37}, compute_type(type()));
  Tensor sum = on_device(x.tensor);
  cuda::add_bias(sum, bias.tensor);
  expect_elements(
      sum, [&](int64_t i) { return x[i] + bias[i % 37]; }, bound(), "add_bias");
}

TEST_P(Rows, RotationsOfBothStyles) {
  constexpr int64_t kRows = 6, kHeads = 3, kSize = 10, kHalf = 5, kTable = 4;
  const Operand x = draw({kRows, kHeads, kSize}), before = draw({kRows, kHeads, kSize});
  const Operand table = draw({kTable, kHalf, 2}, compute_type(type()));
  for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const bool add : {false, true}) {
        const bool half = style == RopeStyle::half;
        const double sign = direction == Direction::forward ? 1 : -1;
        const Tensor out = on_device(before.tensor);
        cuda::rope(x.tensor, table.tensor, style, direction, {out, add});
        expect_elements(
            out,
            [&](int64_t i) {
              const int64_t at = i % kSize, head = i - at, row = i / (kHeads * kSize) % kTable;
              const int64_t pair = half ? at % kHalf : at / 2;
              const bool second = half ? at >= kHalf : at % 2 == 1;
              const double a = x[head + (half ? pair : 2 * pair)];
              const double b = x[head + (half ? pair + kHalf : 2 * pair + 1)];
              const double c = table[(row * kHalf + pair) * 2];
              const double s = sign * table[(row * kHalf + pair) * 2 + 1];
              return (second ? a * s + b * c : a * c - b * s) + (add ? before[i] : 0);
            },
            2 * bound(), "rope");
      }
    }
  }
}

TEST_P(Rows, CrossEntropyAndItsGradient) {
  for (const int64_t width : {1, 3, 65, 300}) {
    const Operand logits = draw({3, width}, compute_type(type()));
    const std::vector<int32_t> ids = {0, -1, static_cast<int32_t>(width - 1)};
    const Tensor targets = on_device(Tensor::from(ids, {3}));
    Tensor losses = on_device(Tensor::zeros({3}, compute_type(type())));
    Tensor gradient = on_device(Tensor::zeros({3, width}, type())), none;
    const auto lse = [&](int64_t row) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) sum += std::exp(logits[row * width + i]);
      return std::log(sum);
    };
    const auto loss = [&](int64_t row) {
      const int32_t id = ids[static_cast<size_t>(row)];
      return id < 0 ? 0 : lse(row) - logits[row * width + id];
    };
    cuda::cross_entropy(logits.tensor, targets, 0.5, losses, gradient);
    expect_elements(losses, loss, 6e-6, "losses");
    expect_elements(
        gradient,
        [&](int64_t i) {
          const int32_t id = ids[static_cast<size_t>(i / width)];
          const double p = std::exp(logits[i] - lse(i / width)) - (i % width == id ? 1 : 0);
          return id < 0 ? 0 : 0.5 * p;
        },
        bound(), "gradient");
    losses.zero();
    cuda::cross_entropy(logits.tensor, targets, 0.5, losses, none);
    expect_elements(losses, loss, 6e-6, "losses alone");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Rows, ::testing::ValuesIn(kActivationTypes), name_of_precision);

}  // namespace
}  // namespace headroom::testing
