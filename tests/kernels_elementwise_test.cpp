// Elementwise kernels in every type against their definitions in float64, at lengths that no vector
// divides.
#include <numbers>

#include "tests/kernel_operands.h"

namespace headroom::testing {
namespace {

using kernels::Activation;
using kernels::Backend;
using kernels::Into;

using Sizes = std::pair<int64_t, int64_t>;  // rows, width

class Elementwise : public ::testing::TestWithParam<Precision> {
 protected:
  DType type() const { return GetParam().type; }
  DeviceOperand draw(const Shape& shape) { return {type(), shape, random_}; }
  void expect_map(int64_t n, const std::function<void(const Into&)>& run, const Elements& expected,
                  const char* what, bool adds = true) const {
    expect_output(type(), {n}, run, expected, GetParam().tolerance, what, adds);
  }

  Backend& kernels_ = test_backend();
  std::mt19937 random_{2};
};

TEST_P(Elementwise, FillScaleAddAndBias) {
  for (const int64_t n : kLengths) {
    const DeviceOperand a = draw({n}), b = draw({n});
    Tensor filled = draw({n}).tensor;
    kernels_.fill(filled, 1.0 / 3);
    expect_elements(
        filled, [](int64_t) { return 1.0 / 3; }, GetParam().tolerance, "fill");
    expect_map(
        n, [&](const Into& y) { kernels_.scale(a.tensor, -1.7, y); },
        [&](int64_t i) { return -1.7 * a[i]; }, "scale");
    expect_map(
        n,
        [&](const Into& y) {
          Tensor out = y.tensor;
          kernels_.add(a.tensor, b.tensor, out);
        },
        [&](int64_t i) { return a[i] + b[i]; }, "add", false);
  }
}

TEST_P(Elementwise, SoftCap) {
  for (const int64_t n : kLengths) {
    const DeviceOperand x = draw({n}), dy = draw({n});
    expect_map(
        n,
        [&](const Into& y) {
          Tensor out = y.tensor;
          kernels_.softcap(x.tensor, 1.5, out);
        },
        [&](int64_t i) { return 1.5 * std::tanh(x[i] / 1.5); }, "softcap", false);
    expect_map(
        n, [&](const Into& dx) { kernels_.softcap_backward(x.tensor, 1.5, dy.tensor, dx); },
        [&](int64_t i) { return dy[i] * (1 - x[i] * x[i] / 2.25); }, "softcap_backward");
  }
}

/// f and f' by their published definitions.
double value(Activation kind, double x) {
  switch (kind) {
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    default:
      return x > 0 ? x * x : 0;
  }
}
double slope(Activation kind, double x) {
  const double root = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  switch (kind) {
    case Activation::gelu_tanh:
      return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
    case Activation::gelu_erf:
      return std::erfc(-x / std::numbers::sqrt2) / 2 + x * root / 2 * std::exp(-x * x / 2);
    default:
      return x > 0 ? 2 * x : 0;
  }
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Ordinary numbers, and on request ones for which a careless exponential overflows.
std::vector<double> inputs(int64_t n, bool large, std::mt19937& random) {
  std::vector<double> values = normals(n, random);
  for (double& x : values) x *= large ? 300 : 2;
  return values;
}

TEST_P(Elementwise, Activations) {
  for (const Activation kind :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu_squared}) {
    for (const int64_t n : kLengths) {
      for (const bool large : {false, true}) {
        const DeviceOperand x(type(), inputs(n, large, random_), {n}), dy = draw({n});
        const std::string what = fmt::format("activation {}{}", static_cast<int>(kind), large);
        expect_map(
            n,
            [&](const Into& y) {
              Tensor out = y.tensor;
              kernels_.activation(kind, x.tensor, out);
            },
            [&](int64_t i) { return value(kind, x[i]); }, what.c_str(), false);
        expect_map(
            n, [&](const Into& dx) { kernels_.activation_backward(kind, x.tensor, dy.tensor, dx); },
            [&](int64_t i) { return dy[i] * slope(kind, x[i]); }, what.c_str());
      }
    }
  }
}

TEST_P(Elementwise, Swiglu) {
  for (const int64_t n : kLengths) {
    for (const bool large : {false, true}) {
      const DeviceOperand gate(type(), inputs(n, large, random_), {n}), up = draw({n}),
                                                                        dy = draw({n});
      expect_map(
          n,
          [&](const Into& y) {
            Tensor out = y.tensor;
            kernels_.swiglu(gate.tensor, up.tensor, out);
          },
          [&](int64_t i) { return gate[i] * sigmoid(gate[i]) * up[i]; }, "swiglu", false);
      const Tensor other = there(Tensor::empty({n}, type()));
      expect_map(
          n,
          [&](const Into& dgate) {
            kernels_.swiglu_backward(gate.tensor, up.tensor, dy.tensor, dgate, {other, false});
          },
          [&](int64_t i) {
            const double s = sigmoid(gate[i]);
            return dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
          },
          "dgate");
      expect_map(
          n,
          [&](const Into& dup) {
            kernels_.swiglu_backward(gate.tensor, up.tensor, dy.tensor, {other, false}, dup);
          },
          [&](int64_t i) { return dy[i] * gate[i] * sigmoid(gate[i]); }, "dup");
    }
  }
}

TEST_P(Elementwise, DropoutKeepsOrDropsByTheStreamAlone) {
  const RandomStream stream(5, "mask");
  constexpr double p = 0.25;
  for (const int64_t n : kLengths) {
    for (const int64_t first : {0, 3}) {
      const DeviceOperand x = draw({n});
      expect_map(
          n, [&](const Into& y) { kernels_.dropout(x.tensor, p, stream, first, y); },
          [&](int64_t i) {
            const auto at = static_cast<uint64_t>(first + i);
            const bool kept = stream.block(at / 4)[at % 4] >= p * 0x1p32;
            return kept ? x[i] / (1 - p) : 0;
          },
          "dropout");
    }
  }
}

TEST_P(Elementwise, ColumnSums) {
  for (const Sizes& sizes : {Sizes{1, 1}, {3, 17}, {65, 3}, {17, 65}, {300, 200}}) {
    const int64_t rows = sizes.first, width = sizes.second;
    const DeviceOperand x = draw({rows, width});
    const auto expected = [&](int64_t c) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += x[r * width + c];
      return sum;
    };
    // The sum is of the compute type: bf16 is rounded nowhere.
    expect_output(
        compute_type(type()), {width}, [&](const Into& out) { kernels_.sum_rows(x.tensor, out); },
        expected, type() == DType::f64 ? 1e-13 : 1e-5, "sum_rows");
  }
}

TEST_P(Elementwise, DoesNotDependOnTheNumberOfThreads) {
  const DeviceOperand x = draw({300, 201}), y = draw({300, 201});
  const RandomStream stream(5, "mask");
  expect_same_for_any_threads([&] {
    std::vector<Tensor> results;
    const auto fresh = [&](const Shape& shape, DType dtype) -> Tensor& {
      return results.emplace_back(there(Tensor::zeros(shape, dtype)));
    };
    kernels_.add(x.tensor, y.tensor, fresh(x.tensor.shape(), type()));
    kernels_.activation(Activation::gelu_tanh, x.tensor, fresh(x.tensor.shape(), type()));
    kernels_.swiglu(x.tensor, y.tensor, fresh(x.tensor.shape(), type()));
    kernels_.dropout(x.tensor, 0.3, stream, 1, {fresh(x.tensor.shape(), type()), false});
    kernels_.sum_rows(x.tensor, {fresh({201}, compute_type(type())), false});
    return results;
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Elementwise, ::testing::ValuesIn(kActivationTypes),
                         name_of_precision);

/// Between any two floating types, at any length; ties go to the even neighbour.
TEST(Cast, RoundsOnceToNearestEven) {
  std::mt19937 random(3);
  const std::vector<DType> types = {DType::f64, DType::f32, DType::bf16, DType::f16};
  const auto with = [](DType type, const std::vector<double>& values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    if (type != DType::f16) return there(as(type, values, shape));
    std::vector<f16> halves;
    for (const double x : values) halves.emplace_back(static_cast<float>(x));
    return there(Tensor::from(halves, shape));
  };
  for (const DType from : types) {
    for (const DType to : types) {
      for (const int64_t n : kLengths) {
        const Tensor x = with(from, normals(n, random));
        Tensor y = with(to, std::vector<double>(static_cast<size_t>(n), std::nan("")));
        test_backend().cast(x, y);
        const Tensor expected = with(to, to_doubles(x));
        ASSERT_EQ(std::memcmp(here(y).raw(), here(expected).raw(), y.nbytes()), 0)
            << name_of(from) << " to " << name_of(to) << ", " << n;
      }
    }
  }
  // 1 + 2^-8 lies between 1 and 1 + 2^-7; 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6.
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> special = {1 + 0x1p-8, 1 + 3 * 0x1p-8, -1 - 0x1p-8, 0.0,
                                       inf,        -inf,           3.4e38,      0x1p-130};
  const std::vector<double> rounded = {1.0, 1 + 0x1p-6, -1.0, 0.0, inf, -inf, inf, 0x1p-130};
  Tensor y = there(Tensor::zeros({8}, DType::bf16));
  test_backend().cast(there(as(DType::f32, special, {8})), y);
  EXPECT_EQ(to_doubles(y), rounded);
  test_backend().cast(there(as(DType::f32, std::vector<double>(8, std::nan("")), {8})), y);
  for (const double x : to_doubles(y)) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace headroom::testing
