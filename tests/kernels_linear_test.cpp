// Products with weights in every type, of one row and of many, against sums in float64; and weights
// in 8 bits against the bound of their rounding.
#include "kernels/cpu/few_rows.h"
#include "tests/kernel_operands.h"
#include "tests/test_device.h"

namespace headroom::testing {
namespace {

using kernels::Weights;

/// Weights as a kernel gets them, and the matrix they stand for, exactly; with a bias or without.
struct Matrix {
  Weights weights;
  std::vector<double> exact, bias;
  int64_t n, k;

  Matrix(DType type, int64_t rows, int64_t columns, std::mt19937& random) : n(rows), k(columns) {
    if (type != DType::i8) {
      const Operand values(type, {n, k}, random);
      weights.values = values.tensor;
      exact = values.exact;
      return;
    }
    std::uniform_int_distribution<int> integers(-127, 127);
    std::vector<int8_t> values(static_cast<size_t>(n * k));
    for (int8_t& value : values) value = static_cast<int8_t>(integers(random));
    const Operand scales(DType::f32, {n}, random);
    for (size_t i = 0; i < values.size(); ++i) {
      exact.push_back(values[i] * scales[static_cast<int64_t>(i) / k]);
    }
    weights = {Tensor::from(values, {n, k}), scales.tensor};
  }
  void add_bias(DType type, std::mt19937& random) { bias = Operand(type, {n}, random).exact; }
  double at(int64_t row, int64_t column) const {
    return exact[static_cast<size_t>(row * k + column)];
  }
};

/// What x w^T and the bias are, and what rounding in their sum may amount to.
struct Sum {
  double value = 0, magnitude = 0;
  double weights = 0;  // the sum of |w|
  double largest = 0;  // of |x|
  Sum(const Operand& x, int64_t row, const Matrix& w, int64_t column) {
    for (int64_t i = 0; i < w.k; ++i) {
      const double product = x[row * w.k + i] * w.at(column, i);
      value += product;
      magnitude += std::abs(product);
      weights += std::abs(w.at(column, i));
      largest = std::max(largest, std::abs(x[row * w.k + i]));
    }
    if (!w.bias.empty()) {
      value += w.bias[static_cast<size_t>(column)];
      magnitude += std::abs(w.bias[static_cast<size_t>(column)]);
    }
  }
};

struct Types {
  const char* name;
  DType x, w, y;
};
std::ostream& operator<<(std::ostream& out, const Types& t) { return out << t.name; }

class LinearKernel : public ::testing::TestWithParam<Types> {
 protected:
  /// It begins bias_offset_ numbers behind the start of its memory.
  Tensor bias_there(const Matrix& matrix) const {
    if (matrix.bias.empty()) return {};
    std::vector<double> numbers(static_cast<size_t>(bias_offset_), std::nan(""));
    numbers.insert(numbers.end(), matrix.bias.begin(), matrix.bias.end());
    const int64_t count = bias_offset_ + matrix.n;
    return there(as(GetParam().y, numbers, {count})).rows(bias_offset_, count);
  }

  std::vector<Tensor> product(const Tensor& x, const std::vector<Matrix>& matrices) const {
    std::vector<Weights> weights;
    std::vector<Tensor> y;
    for (const Matrix& matrix : matrices) {
      weights.push_back(
          {there(matrix.weights.values), there(matrix.weights.scales), bias_there(matrix)});
      const std::vector<double> nan(static_cast<size_t>(x.dim(0) * matrix.n), std::nan(""));
      y.push_back(there(as(GetParam().y, nan, {x.dim(0), matrix.n})));
    }
    test_backend().linear(there(x), weights, y);
    std::transform(y.begin(), y.end(), y.begin(), here);
    return y;
  }

  /// Every second matrix has a bias.
  void expect_products(int64_t m, const std::vector<int64_t>& outputs, int64_t k) {
    std::vector<Matrix> matrices;
    for (const int64_t n : outputs) {
      matrices.emplace_back(GetParam().w, n, k, random_);
      if (matrices.size() % 2 == 0) matrices.back().add_bias(GetParam().y, random_);
    }
    expect_products(m, matrices);
  }

  void expect_products(int64_t m, const std::vector<Matrix>& matrices) {
    const int64_t k = matrices.front().k;
    const Operand x(GetParam().x, {m, k}, random_);
    const std::vector<Tensor> y = product(x.tensor, matrices);
    const double rounding = GetParam().y == DType::f64    ? 1e-15
                            : GetParam().y == DType::bf16 ? kActivationTypes[2].tolerance
                                                          : 0.0;
    // Each addition rounds by half a unit of at most the sum of magnitudes: 2^-24 of it in f32.
    const double adding = GetParam().y == DType::f64 ? 2e-16 : 0x1p-24 * static_cast<double>(k + 2);
    // Beside weights of 8 bits x has 22 bits, its row's largest the first of them.
    const double cutting = GetParam().w == DType::i8 ? 0x1p-22 : 0.0;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const std::vector<double> got = to_doubles(y[i]);
      const int64_t n = matrices[i].n;
      for (int64_t e = 0; e < m * n; ++e) {
        const Sum sum(x, e / n, matrices[i], e % n);
        ASSERT_NEAR(got[static_cast<size_t>(e)], sum.value,
                    rounding * std::abs(sum.value) + adding * sum.magnitude +
                        cutting * sum.largest * sum.weights + 1e-30)
            << fmt::format("m {} n {} k {}, matrix {}, element {}", m, n, k, i, e);
      }
    }
  }

  std::mt19937 random_{1};
  int64_t bias_offset_ = 0;
};

TEST_P(LinearKernel, EqualsSumsInFloat64) {
  for (const int64_t k : {1, 3, 17, 65, 260}) {
    for (const int64_t m : {1, 2, 3, 5, 6, 8, 9, 17, 65}) expect_products(m, {17}, k);
    for (const int64_t n : {1, 3, 4, 65}) expect_products(3, {n}, k);
  }
}

TEST_P(LinearKernel, OfRandomShapesEqualsSumsInFloat64) {
  std::uniform_int_distribution<int64_t> size(1, 70);
  for (int i = 0; i < 20; ++i) expect_products(size(random_), {size(random_)}, size(random_));
}

TEST_P(LinearKernel, OfSeveralMatricesGoesToEachResult) {
  for (const int64_t m : {1, 4, 20}) expect_products(m, {5, 130, 1, 66}, 129);
  for (const int64_t m : {1, 4}) expect_products(m, {301, 75, 75}, 200);
}

TEST_P(LinearKernel, AddsBiasesToMatricesOfOddSizes) {
  for (const int64_t m : {1, 3, 17, 65}) {
    for (const int64_t n : {1, 3, 17, 65}) {
      for (const int64_t k : {1, 17}) {
        Matrix w(GetParam().w, n, k, random_);
        w.add_bias(GetParam().y, random_);
        expect_products(m, {w});
      }
    }
  }
}

/// What a product adds is not kept with what is kept for its shape.
TEST_P(LinearKernel, OfOneShapeAddsToEachProductItsOwnBias) {
  for (const int64_t m : {2, 20}) {
    expect_products(m, {33, 33, 33, 33, 33}, 17);
  }
}

TEST_P(LinearKernel, AddsABiasThatIsNotAligned) {
  for (const int64_t m : {2, 20}) {
    for (const int64_t offset : {0, 1, 3}) {
      bias_offset_ = offset;
      Matrix w(GetParam().w, 33, 17, random_);
      w.add_bias(GetParam().y, random_);
      expect_products(m, {w});
    }
  }
}

/// Whatever other rows there are: decoding in a batch is decoding alone. Nothing decodes in f64.
TEST_P(LinearKernel, GivesARowTheSameBitsInAnyBatch) {
  if (GetParam().x == DType::f64 && test_device() != kCpu && !test_device_is_a_double()) {
    GTEST_SKIP() << "products of cuBLASLt";
  }
  constexpr int64_t kMost = kernels::cpu::kFewRows, kWidth = 131;
  const Operand x(GetParam().x, {kMost, kWidth}, random_);
  const std::vector<Matrix> w{Matrix(GetParam().w, 39, kWidth, random_)};
  for (int64_t m = 2; m <= kMost; ++m) {
    const Tensor together = product(x.tensor.rows(0, m), w)[0];
    for (int64_t row = 0; row < m; ++row) {
      const Tensor alone = product(x.tensor.rows(row, row + 1), w)[0];
      ASSERT_EQ(std::memcmp(alone.raw(), together.rows(row, row + 1).raw(), alone.nbytes()), 0)
          << "row " << row << " of " << m;
    }
  }
}

TEST_P(LinearKernel, DoesNotDependOnTheNumberOfThreads) {
  const Operand x(GetParam().x, {3, 130}, random_);
  const std::vector<Matrix> w{Matrix(GetParam().w, 701, 130, random_),
                              Matrix(GetParam().w, 90, 130, random_)};
  expect_same_for_any_threads([&] { return product(x.tensor, w); });
}

INSTANTIATE_TEST_SUITE_P(
    Types, LinearKernel,
    ::testing::Values(Types{"f64", DType::f64, DType::f64, DType::f64},
                      Types{"f32_f32", DType::f32, DType::f32, DType::f32},
                      Types{"f32_bf16", DType::f32, DType::bf16, DType::f32},
                      Types{"f32_i8", DType::f32, DType::i8, DType::f32},
                      Types{"bf16_f32", DType::bf16, DType::f32, DType::bf16},
                      Types{"bf16_bf16", DType::bf16, DType::bf16, DType::bf16},
                      Types{"bf16_i8", DType::bf16, DType::i8, DType::bf16},
                      Types{"bf16_bf16_to_f32", DType::bf16, DType::bf16, DType::f32}),
    [](const auto& each) { return std::string(each.param.name); });

/// The rows of x in 8 bits.
Weights quantized(const Tensor& x) {
  Weights q{there(Tensor::zeros(x.shape(), DType::i8)),
            there(Tensor::zeros({x.dim(0)}, DType::f32))};
  test_backend().quantize_rows(there(x), q);
  return {here(q.values), here(q.scales)};
}

/// x times the transpose of the weights, in f32.
Tensor product_with(const Tensor& x, const Weights& q) {
  const Weights weights{there(q.values), there(q.scales)};
  Tensor y = there(Tensor::zeros({x.dim(0), q.values.dim(0)}, DType::f32));
  test_backend().linear(there(x), std::span(&weights, 1), std::span(&y, 1));
  return here(y);
}

TEST(QuantizeRows, RoundsEachRowToItsOwnScale) {
  const std::vector<float> rows = {127, 0.5F,   1.5F, -2.5F, -127, 126.5F,  // scale 1, ties to even
                                   0,   0,      0,    0,     0,    0,       //
                                   0,   -0.25F, 0.1F, 0,     0,    0};      // the most is negative
  const Weights q = quantized(Tensor::from(rows, {3, 6}));
  EXPECT_EQ(q.values.to_vector<int8_t>(), (std::vector<int8_t>{127, 0, 2, -2, -127, 126, 0, 0, 0, 0,
                                                               0, 0, 0, -127, 51, 0, 0, 0}));
  EXPECT_EQ(q.scales.to_vector<float>(), (std::vector<float>{1, 0, 0.25F / 127}));
}

TEST(QuantizeRows, IsWrongByHalfAScaleAtMost) {
  std::mt19937 random(3);
  for (const int64_t width : {1, 3, 17, 65, 1000}) {
    const Operand x(DType::f32, {7, width}, random);
    const Weights q = quantized(x.tensor);
    const auto values = q.values.to_vector<int8_t>();
    const auto scales = q.scales.to_vector<float>();
    for (int64_t i = 0; i < x.tensor.numel(); ++i) {
      const double scale = scales[static_cast<size_t>(i / width)];
      EXPECT_NEAR(values[static_cast<size_t>(i)] * scale, x[i], scale / 2 * (1 + 1e-5));
    }
  }
}

/// Each weight is wrong by half a scale at most, so a product by sum |x| * scale / 2.
TEST(QuantizedWeights, GiveProductsWithinTheBoundOfTheirRounding) {
  std::mt19937 random(4);
  constexpr int64_t kRows = 4, kOutputs = 33, kWidth = 300;
  const Operand x(DType::f32, {kRows, kWidth}, random);
  const Matrix w(DType::f32, kOutputs, kWidth, random);
  const Weights q = quantized(w.weights.values);
  const Tensor y = product_with(x.tensor, q);
  double largest = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    double magnitude = 0;
    for (int64_t j = 0; j < kWidth; ++j) magnitude += std::abs(x[i / kOutputs * kWidth + j]);
    const double bound = magnitude * q.scales.data<float>()[i % kOutputs] / 2;
    const double error = std::abs(y.data<float>()[i] - Sum(x, i / kOutputs, w, i % kOutputs).value);
    EXPECT_LE(error, bound * (1 + 1e-5));
    largest = std::max(largest, error);
  }
  EXPECT_GT(largest, 0);
}

/// What is no number makes none, and rows of zeros and of tiny numbers are as right as others.
TEST(QuantizedWeights, MeetRowsOfEveryMagnitude) {
  constexpr int64_t kWidth = 70;
  std::vector<double> w(kWidth, 1.0), x(kWidth, 0.0);
  const Weights q = quantized(as(DType::f32, w, {1, kWidth}));
  const auto product = [&](double first, double last) {
    x.front() = first;
    x.back() = last;
    return product_with(as(DType::f32, x, {1, kWidth}), q).data<float>()[0];
  };
  EXPECT_EQ(product(0, 0), 0);
  EXPECT_EQ(product(0x1p-120, 0x1p-121), 0x1.8p-120F);
  EXPECT_EQ(product(0x1p120, -0x1p119), 0x1p119F);
  EXPECT_FALSE(std::isfinite(product(INFINITY, 1)));
  EXPECT_TRUE(std::isnan(product(1, NAN)));
  EXPECT_TRUE(std::isnan(product(INFINITY, -INFINITY)));
}

/// Integers up to 127 are their own quantisation, and sums of small integers are exact in f32.
TEST(QuantizedWeights, AreExactWhereEightBitsHoldThem) {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> integers(-127, 127);
  constexpr int64_t kOutputs = 21, kWidth = 70;
  std::vector<double> w(kOutputs * kWidth), x(kWidth);
  for (double& value : w) value = integers(random);
  for (int64_t row = 0; row < kOutputs; ++row) w[static_cast<size_t>(row * kWidth)] = 127;
  for (double& value : x) value = integers(random);
  const Weights q = quantized(as(DType::f32, w, {kOutputs, kWidth}));
  const Tensor y = product_with(as(DType::f32, x, {1, kWidth}), q);
  for (int64_t row = 0; row < kOutputs; ++row) {
    double expected = 0;
    for (int64_t j = 0; j < kWidth; ++j) {
      expected += x[static_cast<size_t>(j)] * w[static_cast<size_t>(row * kWidth + j)];
    }
    EXPECT_EQ(y.data<float>()[row], expected);
  }
}

}  // namespace
}  // namespace headroom::testing
