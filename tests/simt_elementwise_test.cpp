// The GPU's loops over elements in the harness, in every type and at lengths around a pack and a
// block, against their definitions in float64.
#include "kernels/cuda/elementwise.h"

#include <numbers>

#include "tests/kernel_operands.h"
#include "tests/simt/device_memory.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;
using kernels::Activation;
using kernels::Into;

class Elementwise : public ::testing::TestWithParam<Precision> {
 protected:
  DType type() const { return GetParam().type; }
  Operand draw(int64_t n) {
    Operand x(type(), {n}, random_);
    x.tensor = on_device(x.tensor);
    return x;
  }
  /// Runs a kernel that overwrites its output, and adds to it where `adds`.
  void expect_map(int64_t n, const std::function<void(const Into&)>& run, const Elements& expected,
                  const char* what, bool adds = true) {
    const double bound = GetParam().tolerance;
    const Tensor fresh =
        on_device(as(type(), std::vector<double>(static_cast<size_t>(n), NAN), {n}));
    run({fresh, false});
    expect_elements(fresh, expected, bound, what);
    if (adds) {
      const Operand before = draw(n);
      run({before.tensor, true});
      expect_elements(
          before.tensor, [&](int64_t i) { return before[i] + expected(i); }, bound, what);
    }
  }
  void expect_written(int64_t n, const std::function<void(Tensor&)>& run, const Elements& expected,
                      const char* what) {
    expect_map(
        n,
        [&](const Into& y) {
          Tensor out = y.tensor;
          run(out);
        },
        expected, what, false);
  }
  std::mt19937 random_{2};
};

const std::vector<int64_t> kAround = {1, 3, 8, 17, 2051};

TEST_P(Elementwise, FillScaleAddAndSoftCap) {
  for (const int64_t n : kAround) {
    const Operand a = draw(n), b = draw(n);
    expect_written(
        n, [&](Tensor& y) { cuda::fill(y, 1.0 / 3); }, [](int64_t) { return 1.0 / 3; }, "fill");
    expect_map(
        n, [&](const Into& y) { cuda::scale(a.tensor, -1.7, y); },
        [&](int64_t i) { return -1.7 * a[i]; }, "scale");
    expect_written(
        n, [&](Tensor& y) { cuda::add(a.tensor, b.tensor, y); },
        [&](int64_t i) { return a[i] + b[i]; }, "add");
    expect_written(
        n, [&](Tensor& y) { cuda::softcap(a.tensor, 1.5, y); },
        [&](int64_t i) { return 1.5 * std::tanh(a[i] / 1.5); }, "softcap");
    expect_map(
        n, [&](const Into& dx) { cuda::softcap_backward(a.tensor, 1.5, b.tensor, dx); },
        [&](int64_t i) { return b[i] * (1 - a[i] * a[i] / 2.25); }, "softcap_backward");
  }
}

double cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

/// f and f' by their published definitions.
double value(Activation kind, double x) {
  switch (kind) {
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return x * cdf(x);
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
      return cdf(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    default:
      return x > 0 ? 2 * x : 0;
  }
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_P(Elementwise, ActivationsAndSwiglu) {
  for (const int64_t n : kAround) {
    for (const double spread : {2.0, 300.0}) {  // a careless exponential overflows at 300
      std::vector<double> values = normals(n, random_);
      for (double& x : values) x *= spread;
      Operand x(type(), values, {n});
      x.tensor = on_device(x.tensor);
      const Operand up = draw(n), dy = draw(n);
      for (const Activation kind :
           {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu_squared}) {
        expect_written(
            n, [&](Tensor& y) { cuda::activation(kind, x.tensor, y); },
            [&](int64_t i) { return value(kind, x[i]); }, "activation");
        expect_map(
            n, [&](const Into& dx) { cuda::activation_backward(kind, x.tensor, dy.tensor, dx); },
            [&](int64_t i) { return dy[i] * slope(kind, x[i]); }, "activation_backward");
      }
      expect_written(
          n, [&](Tensor& y) { cuda::swiglu(x.tensor, up.tensor, y); },
          [&](int64_t i) { return x[i] * sigmoid(x[i]) * up[i]; }, "swiglu");
      const Into other{draw(n).tensor, false};
      expect_map(
          n,
          [&](const Into& d) { cuda::swiglu_backward(x.tensor, up.tensor, dy.tensor, d, other); },
          [&](int64_t i) {
            const double s = sigmoid(x[i]);
            return dy[i] * up[i] * s * (1 + x[i] * (1 - s));
          },
          "dgate");
      expect_map(
          n,
          [&](const Into& d) { cuda::swiglu_backward(x.tensor, up.tensor, dy.tensor, other, d); },
          [&](int64_t i) { return dy[i] * x[i] * sigmoid(x[i]); }, "dup");
    }
  }
}

TEST_P(Elementwise, ViewsThatAreNotAligned) {
  const Operand x = draw(70);
  Tensor y = draw(70).tensor;
  const Tensor from = x.tensor.rows(1, 68);
  Tensor to = y.rows(2, 69);
  cuda::scale(from, 2, {to, false});
  expect_elements(
      to, [&](int64_t i) { return 2 * x[i + 1]; }, GetParam().tolerance, "a view");
}

INSTANTIATE_TEST_SUITE_P(Types, Elementwise, ::testing::ValuesIn(kActivationTypes),
                         name_of_precision);

TEST(ElementwiseCast, IsTheRoundingOfTheHost) {
  std::mt19937 random(3);
  const std::vector<double> values = normals(2051, random);
  for (const DType from : {DType::f64, DType::f32, DType::bf16}) {
    for (const DType to : {DType::f64, DType::f32, DType::bf16}) {
      const Tensor x = as(from, values, {2051});
      const std::vector<double> expected = to_doubles(from == to ? x : as(to, as(DType::f32, x)));
      Tensor y = on_device(as(to, values, {2051}));
      y.zero();
      cuda::cast(on_device(x), y);
      expect_elements(
          y, [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 0, "cast");
    }
  }
}

}  // namespace
}  // namespace headroom::testing
