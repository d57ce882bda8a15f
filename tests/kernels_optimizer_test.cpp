// The arithmetic of optimizers against its definition in float64.
#include "tests/kernel_operands.h"

namespace headroom::testing {
namespace {

using kernels::AdamWTensors;

const std::vector<Precision> kParameterTypes(kActivationTypes.begin(),
                                             kActivationTypes.begin() + 2);

class OptimizerKernels : public ::testing::TestWithParam<Precision> {
 protected:
  DeviceOperand draw(int64_t n) { return {GetParam().type, {n}, random_}; }
  std::mt19937 random_{5};
};

Tensor squares_of(const std::vector<Tensor>& tensors) {
  Tensor sum = there(Tensor::zeros({}, DType::f64));
  test_backend().sum_of_squares(tensors, sum);
  return sum;
}
Tensor scale(double value) { return there(Tensor::from(std::vector<double>{value}, {})); }

/// More tensors than one launch takes on a GPU.
TEST_P(OptimizerKernels, SumOfSquaresOverManyTensors) {
  std::vector<Tensor> tensors;
  double expected = 0;
  for (int64_t i = 0; i < 70; ++i) {
    const DeviceOperand x = draw(i < std::ssize(kLengths) ? kLengths[static_cast<size_t>(i)] : i);
    for (const double value : x.exact) expected += value * value;
    tensors.push_back(x.tensor);
    if (i % 7 == 6) {
      EXPECT_NEAR(squares_of(tensors).item(), expected, GetParam().tolerance * expected) << i;
    }
  }
  EXPECT_EQ(squares_of({}).item(), 0.0);
}

/// PyTorch's rule, over the mean of 4 batches; and no step for what is no number.
TEST(ClipScale, IsThatOfTheMeanGradient) {
  const auto clip = [](double squares, double count, double most) {
    Tensor result = scale(0);
    test_backend().clip_scale(scale(squares), count, most, result);
    return result.item();
  };
  EXPECT_EQ(clip(144, 4, 0), 0.25);
  EXPECT_EQ(clip(144, 4, 5), 0.25);
  EXPECT_DOUBLE_EQ(clip(144, 4, 1.5), 1.5 / (3 + 1e-6) / 4);
  EXPECT_EQ(clip(0, 2, 1), 0.5);
  for (const double none : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(std::isnan(clip(none, 1, 1)));
    EXPECT_TRUE(std::isnan(clip(none, 1, 0)));
  }
}

/// Three steps of several tensors, one of them without decay, by the formulas of Loshchilov and
/// Hutter.
TEST_P(OptimizerKernels, AdamWTakesItsPublishedSteps) {
  constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kClip = 0.6;
  std::vector<AdamWTensors> tensors;
  std::vector<std::vector<double>> params, m, v;
  for (const int64_t n : kLengths) {
    const DeviceOperand param = draw(n);
    const Tensor zero = there(Tensor::zeros({n}, GetParam().type));
    tensors.push_back({param.tensor, zero, zero.clone(), zero.clone(), n == 17 ? 0.0 : 0.3});
    params.push_back(param.exact);
    m.emplace_back(static_cast<size_t>(n));
    v.emplace_back(static_cast<size_t>(n));
  }
  for (int64_t step = 1; step <= 3; ++step) {
    const auto t = static_cast<double>(step);
    for (size_t k = 0; k < tensors.size(); ++k) {
      const DeviceOperand grad = draw(tensors[k].param.numel());
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
    test_backend().adamw(tensors, {kRate, kBeta1, kBeta2, kEps, step, scale(kClip)});
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

/// Two updates of matrices that fill more than one block, by their definitions.
TEST_P(OptimizerKernels, MuonTurnsGradientsIntoDirections) {
  constexpr double kMu = 0.9, kScale = 0.5, kKeep = 0.97, kRate = 0.03;
  constexpr int64_t kRows = 37, kColumns = 65, kSize = kRows * kColumns;
  std::vector<DeviceOperand> params, momenta;
  std::vector<std::vector<double>> param, momentum;
  for (int i = 0; i < 3; ++i) {
    params.push_back(draw(kSize));
    momenta.push_back(draw(kSize));
    param.push_back(params.back().exact);
    momentum.push_back(momenta.back().exact);
  }
  for (int step = 0; step < 2; ++step) {
    std::vector<kernels::MuonTensors> matrices;
    std::vector<double> expected;
    for (size_t i = 0; i < 3; ++i) {
      const DeviceOperand grad = draw(kSize);
      matrices.push_back({params[i].tensor, grad.tensor, momenta[i].tensor});
      for (size_t j = 0; j < param[i].size(); ++j) {
        const double g = kScale * grad.exact[j];
        momentum[i][j] = kMu * momentum[i][j] + g;
        expected.push_back(g + kMu * momentum[i][j]);
        param[i][j] = kKeep * param[i][j] - kRate * expected.back();
      }
    }
    Tensor directions = there(Tensor::zeros({3, kRows, kColumns}, GetParam().type));
    test_backend().muon_directions(matrices, kMu, scale(kScale), directions);
    test_backend().muon_update(matrices, directions, kKeep, kRate, scale(kScale));
    const auto expect = [](const Tensor& actual, const std::vector<double>& values) {
      expect_elements(
          actual, [&](int64_t i) { return values[static_cast<size_t>(i)]; },
          4 * GetParam().tolerance, "muon");
    };
    expect(directions, expected);
    for (size_t i = 0; i < 3; ++i) {
      expect(params[i].tensor, param[i]);
      expect(momenta[i].tensor, momentum[i]);
    }
  }
}

TEST_P(OptimizerKernels, UnitMatricesHaveNormOne) {
  constexpr double kEps = 1e-3;
  for (const Shape& shape :
       {Shape{3, 5, 1}, {3, 5, 17}, {3, 5, 300}, {2, 5, 1701}, {65, 1, 3}, {1, 1, 1}}) {
    const DeviceOperand x(GetParam().type, shape, random_);
    Tensor y = there(Tensor::zeros(shape, GetParam().type));
    test_backend().unit_matrices(x.tensor, kEps, y);
    const int64_t size = shape.dim(1) * shape.dim(2);
    std::vector<double> squares(static_cast<size_t>(shape.dim(0)), 0.0);
    for (int64_t i = 0; i < shape.numel(); ++i)
      squares[static_cast<size_t>(i / size)] += x[i] * x[i];
    expect_elements(
        y,
        [&](int64_t i) {
          return x[i] / (std::sqrt(squares[static_cast<size_t>(i / size)]) + kEps);
        },
        GetParam().tolerance, "unit");
  }
}

/// A gradient that is no number leaves parameters and state as they are.
TEST_P(OptimizerKernels, TakeNoStepWithoutAScale) {
  const DeviceOperand p = draw(65), m = draw(65), v = draw(65);
  const Tensor grad = there(as(GetParam().type, std::vector<double>(65, std::nan("")), {65}));
  const Tensor none = scale(std::nan(""));
  const AdamWTensors tensors[] = {{p.tensor, grad, m.tensor, v.tensor, 0.1}};
  test_backend().adamw(tensors, {0.01, 0.9, 0.95, 1e-8, 1, none});
  const kernels::MuonTensors matrices[] = {{p.tensor, grad, m.tensor}};
  Tensor directions = grad.clone().reshape({1, 5, 13});
  test_backend().muon_directions(matrices, 0.9, none, directions);
  test_backend().muon_update(matrices, directions, 0.5, 0.1, none);
  for (const DeviceOperand* kept : {&p, &m, &v}) EXPECT_EQ(to_doubles(kept->tensor), kept->exact);
}

TEST_P(OptimizerKernels, DoNotDependOnTheNumberOfThreads) {
  const DeviceOperand param = draw(60001), grad = draw(60001);
  expect_same_for_any_threads([&] {
    const Tensor p = param.tensor.clone(), m = there(Tensor::zeros({60001}, GetParam().type)),
                 v = m.clone();
    const AdamWTensors tensors[] = {{p, grad.tensor, m, v, 0.1}};
    test_backend().adamw(tensors, {0.01, 0.9, 0.95, 1e-8, 1, scale(1)});
    return std::vector<Tensor>{p, m, v, squares_of({grad.tensor, param.tensor})};
  });
}

INSTANTIATE_TEST_SUITE_P(Types, OptimizerKernels, ::testing::ValuesIn(kParameterTypes),
                         name_of_precision);

}  // namespace
}  // namespace headroom::testing
