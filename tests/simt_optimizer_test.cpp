// The GPU's optimizer and what choosing tokens asks of it, in the harness, against the definitions
// in float64.
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/sampling.h"
#include "tests/kernel_operands.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/gpu.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;
using kernels::AdamWStep;
using kernels::AdamWTensors;
using kernels::Largest;

TEST(GpuOptimizer, SumOfSquaresOfManyTensors) {
  std::mt19937 random(1);
  std::vector<Tensor> tensors;
  double want = 0;
  // More than one launch takes, of every type, and one of several pieces.
  for (int64_t i = 0; i < 70; ++i) {
    const DType type = i % 3 == 0 ? DType::f32 : i % 3 == 1 ? DType::f64 : DType::bf16;
    const Operand x(type, {i == 4 ? 3 * 8192 + 5 : 1 + i}, random);
    for (const double value : x.exact) want += value * value;
    tensors.push_back(x.tensor.to(gpu()));
  }
  const double got = cuda::sum_of_squares(tensors);
  EXPECT_NEAR(got, want, 1e-6 * want);
  EXPECT_EQ(cuda::sum_of_squares(tensors), got);
  EXPECT_EQ(cuda::sum_of_squares({}), 0);
}

TEST(GpuOptimizer, AdamWTakesEveryTensorAStep) {
  const AdamWStep step = {
      .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .step = 3, .grad_scale = 0.5};
  std::mt19937 random(2);
  struct Before {
    Operand p, g, m, v;
  };
  std::vector<Before> before;
  std::vector<AdamWTensors> tensors;
  for (int64_t i = 0; i < 67; ++i) {
    const Shape shape = {i == 3 ? 700 : 1 + i};
    const DType type = i % 2 == 0 ? DType::f32 : DType::f64;
    std::vector<double> squares = normals(shape.numel(), random);
    for (double& x : squares) x = x * x;
    before.push_back({Operand(type, shape, random), Operand(type, shape, random),
                      Operand(type, shape, random), Operand(type, squares, shape)});
    const Before& b = before.back();
    tensors.push_back({on_device(b.p.tensor), on_device(b.g.tensor), on_device(b.m.tensor),
                       on_device(b.v.tensor), i % 3 == 0 ? 0.2 : 0});
  }
  cuda::adamw(tensors, step);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const auto& [p, g, m, v] = before[t];
    const double bound = tensors[t].param.dtype() == DType::f64 ? 1e-13 : 2e-6;
    const auto first = [&](int64_t i) { return 0.9 * m[i] + 0.1 * 0.5 * g[i]; };
    const auto second = [&](int64_t i) { return 0.99 * v[i] + 0.01 * 0.25 * g[i] * g[i]; };
    expect_elements(tensors[t].m, first, bound, "m");
    expect_elements(tensors[t].v, second, bound, "v");
    expect_elements(
        tensors[t].param,
        [&](int64_t i) {
          const double m_hat = first(i) / (1 - std::pow(0.9, 3));
          const double v_hat = second(i) / (1 - std::pow(0.99, 3));
          return p[i] - 0.1 * (m_hat / (std::sqrt(v_hat) + 1e-3) + tensors[t].weight_decay * p[i]);
        },
        bound, "param");
  }
}

class GpuSampling : public ::testing::TestWithParam<DType> {};

TEST_P(GpuSampling, LargestIsTheFirstOfEqualOnes) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int64_t n : {1, 37, 2 * 4096 + 11}) {
    std::mt19937 random(3);
    std::vector<double> numbers = normals(n, random);
    const auto last = static_cast<size_t>(n - 1), place = last / 3;
    numbers[last] = numbers[place] = 9;
    numbers[last / 2] = n > 1 ? -infinity : 9;
    const Operand x(GetParam(), numbers, {n});
    double sum = 0;
    for (const double value : x.exact) sum += std::exp(value);
    const Largest got = cuda::largest(x.tensor.to(gpu()));
    EXPECT_EQ(got.index, static_cast<int64_t>(place));
    EXPECT_EQ(got.value, 9);
    EXPECT_NEAR(got.log_sum, std::log(sum), GetParam() == DType::f64 ? 1e-12 : 2e-6);
    for (const double bad : {infinity, std::nan("")}) {
      std::vector<double> spoilt = numbers;
      spoilt[last / 2] = bad;
      EXPECT_EQ(cuda::largest(as(GetParam(), spoilt, {n}).to(gpu())).index, -1);
    }
    const std::vector<double> nothing(static_cast<size_t>(n), -infinity);
    EXPECT_EQ(cuda::largest(as(GetParam(), nothing, {n}).to(gpu())).index, -1);
  }
}

TEST_P(GpuSampling, WeightsAreExponentials) {
  std::mt19937 random(5);
  std::vector<double> numbers = normals(300, random);
  numbers[7] = -std::numeric_limits<double>::infinity();
  const Operand x(GetParam(), numbers, {300});
  const double shift = *std::max_element(x.exact.begin(), x.exact.end());
  Tensor y = on_device(x.tensor);
  cuda::exp_weights(on_device(x.tensor), shift, 0.7, y);
  expect_elements(
      y, [&](int64_t i) { return std::exp((x[i] - shift) / 0.7); },
      GetParam() == DType::f64 ? 1e-14 : 1e-6, "exp_weights");
  cuda::exp_weights(on_device(x.tensor), shift, 0, y);
  expect_elements(
      y, [&](int64_t i) { return x[i] == shift ? 1 : 0; }, 0, "a divisor of 0");
}

INSTANTIATE_TEST_SUITE_P(Types, GpuSampling, ::testing::Values(DType::f64, DType::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

}  // namespace
}  // namespace headroom::testing
