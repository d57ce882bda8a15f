// The arithmetic of optimizers against its definition in float64.
#include "tests/kernel_operands.h"

namespace headroom::testing {
namespace {

using kernels::AdamWTensors;

const std::vector<Precision> kParameterTypes(kActivationTypes.begin(),
                                             kActivationTypes.begin() + 2);

class OptimizerKernels : public ::testing::TestWithParam<Precision> {
 protected:
  Operand draw(int64_t n) { return {GetParam().type, {n}, random_}; }
  std::mt19937 random_{5};
};

TEST_P(OptimizerKernels, SumOfSquaresOverSeveralTensors) {
  std::vector<Tensor> tensors;
  double expected = 0;
  for (const int64_t n : kLengths) {
    const Operand x = draw(n);
    for (const double value : x.exact) expected += value * value;
    tensors.push_back(x.tensor);
    const double got = kernels::backend(kCpu).sum_of_squares(tensors);
    EXPECT_NEAR(got, expected, GetParam().tolerance * expected) << n;
  }
  EXPECT_EQ(kernels::backend(kCpu).sum_of_squares({}), 0.0);
}

/// Three steps of several tensors, one of them without decay, by the formulas of Loshchilov and
/// Hutter.
TEST_P(OptimizerKernels, AdamWTakesItsPublishedSteps) {
  constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kClip = 0.6;
  std::vector<AdamWTensors> tensors;
  std::vector<std::vector<double>> params, m, v;
  for (const int64_t n : kLengths) {
    const Operand param = draw(n);
    const Tensor zero = Tensor::zeros({n}, GetParam().type);
    tensors.push_back({param.tensor, zero, zero.clone(), zero.clone(), n == 17 ? 0.0 : 0.3});
    params.push_back(param.exact);
    m.emplace_back(static_cast<size_t>(n));
    v.emplace_back(static_cast<size_t>(n));
  }
  for (int64_t step = 1; step <= 3; ++step) {
    const auto t = static_cast<double>(step);
    for (size_t k = 0; k < tensors.size(); ++k) {
      const Operand grad = draw(tensors[k].param.numel());
      tensors[k].grad = grad.tensor;
      for (size_t i = 0; i < params[k].size(); ++i) {
        const double g = kClip * grad.exact[i];
        m[k][i] = kBeta1 * m[k][i] + (1 - kBeta1) * g;
        v[k][i] = kBeta2 * v[k][i] + (1 - kBeta2) * g * g;
        params[k][i] -= kRate * tensors[k].weight_decay * params[k][i];
        params[k][i] -= kRate * m[k][i] / (1 - std::pow(kBeta1, t)) /
                        (std::sqrt(v[k][i] / (1 - std::pow(kBeta2, t))) + kEps);
      }
    }
    kernels::backend(kCpu).adamw(tensors, {kRate, kBeta1, kBeta2, kEps, step, kClip});
    for (size_t k = 0; k < tensors.size(); ++k) {
      const auto expect = [&](const Tensor& actual, const std::vector<double>& expected,
                              const char* what) {
        expect_elements(
            actual, [&](int64_t i) { return expected[static_cast<size_t>(i)]; },
            GetParam().tolerance, what);
      };
      expect(tensors[k].param, params[k], "param");
      expect(tensors[k].m, m[k], "m");
      expect(tensors[k].v, v[k], "v");
    }
  }
}

TEST_P(OptimizerKernels, DoNotDependOnTheNumberOfThreads) {
  const Operand param = draw(60001), grad = draw(60001);
  expect_same_for_any_threads([&] {
    const Tensor p = param.tensor.clone(), m = Tensor::zeros({60001}, GetParam().type),
                 v = m.clone();
    const AdamWTensors tensors[] = {{p, grad.tensor, m, v, 0.1}};
    kernels::backend(kCpu).adamw(tensors, {0.01, 0.9, 0.95, 1e-8, 1, 1.0});
    const Tensor squares[] = {grad.tensor, param.tensor};
    const std::vector<double> sum = {kernels::backend(kCpu).sum_of_squares(squares)};
    return std::vector<Tensor>{p, m, v, Tensor::from(sum, {1})};
  });
}

INSTANTIATE_TEST_SUITE_P(Types, OptimizerKernels, ::testing::ValuesIn(kParameterTypes),
                         name_of_precision);

}  // namespace
}  // namespace headroom::testing
