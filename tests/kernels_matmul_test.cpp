// Stored products of every type and transposition against sums in float64.
#include "tests/kernel_operands.h"

namespace headroom::testing {
namespace {

using kernels::Into;
using kernels::Transpose;

struct MatmulTypes {
  const char* name;
  DType operands, result;
};
std::ostream& operator<<(std::ostream& out, const MatmulTypes& t) { return out << t.name; }

/// op(x)(row, column) of a stored matrix.
struct Stored {
  DeviceOperand stored;
  int64_t rows, columns;
  bool turned;
  Stored(DType type, int64_t r, int64_t c, Transpose t, std::mt19937& random)
      : stored(type, t == Transpose::no ? Shape{r, c} : Shape{c, r}, random),
        rows(r),
        columns(c),
        turned(t == Transpose::yes) {}
  double at(int64_t r, int64_t c) const { return stored[turned ? c * rows + r : r * columns + c]; }
};

class Matmul : public ::testing::TestWithParam<MatmulTypes> {
 protected:
  static double bound(int64_t k) {
    if (GetParam().result == DType::bf16) return kActivationTypes[2].tolerance;
    return (GetParam().result == DType::f64 ? 2e-16 : 1e-7) * static_cast<double>(k + 10);
  }

  void expect_product(int64_t m, int64_t n, int64_t k) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const Stored a(GetParam().operands, m, k, ta, random_),
            b(GetParam().operands, k, n, tb, random_);
        const auto expected = [&](int64_t i) {
          double sum = 0;
          for (int64_t j = 0; j < k; ++j) sum += a.at(i / n, j) * b.at(j, i % n);
          return sum;
        };
        expect_output(
            GetParam().result, {m, n},
            [&](const Into& out) {
              test_backend().matmul(a.stored.tensor, ta, b.stored.tensor, tb, out);
            },
            expected, bound(k), fmt::format("k {} ta {} tb {}", k, a.turned, b.turned));
      }
    }
  }

  void expect_stack(int64_t stack, int64_t m, int64_t n, int64_t k) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        std::vector<Stored> a, b;
        for (int64_t i = 0; i < stack; ++i) {
          a.emplace_back(GetParam().operands, m, k, ta, random_);
          b.emplace_back(GetParam().operands, k, n, tb, random_);
        }
        const auto stacked = [stack](const std::vector<Stored>& matrices) {
          const Tensor& one = matrices[0].stored.tensor;
          Tensor all = there(Tensor::empty({stack, one.dim(0), one.dim(1)}, one.dtype()));
          for (int64_t i = 0; i < stack; ++i) {
            const Tensor& from = matrices[static_cast<size_t>(i)].stored.tensor;
            all.rows(i, i + 1).copy_from(from.reshape({1, one.dim(0), one.dim(1)}));
          }
          return all;
        };
        const auto expected = [&](int64_t i) {
          const auto s = static_cast<size_t>(i / (m * n));
          const int64_t row = i / n % m, column = i % n;
          double sum = 0;
          for (int64_t j = 0; j < k; ++j) sum += a[s].at(row, j) * b[s].at(j, column);
          return sum;
        };
        expect_output(
            GetParam().result, {stack, m, n},
            [&](const Into& out) { test_backend().matmul(stacked(a), ta, stacked(b), tb, out); },
            expected, bound(k), fmt::format("ta {} tb {}", a[0].turned, b[0].turned));
      }
    }
  }

  std::mt19937 random_{1};
};

TEST_P(Matmul, EqualsSumsInFloat64) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                {3, 17, 65},
                                {17, 65, 3},
                                {65, 3, 17},
                                {65, 130, 65},
                                {9, 33, 129}}) {
    expect_product(m, n, k);
  }
}

TEST_P(Matmul, OfRandomShapesEqualsSumsInFloat64) {
  std::uniform_int_distribution<int64_t> size(1, 70);
  for (int i = 0; i < 8; ++i) expect_product(size(random_), size(random_), size(random_));
}

/// A stack is its matrices one by one, whichever of them are stored transposed.
TEST_P(Matmul, OfStacksIsThatOfTheirMatrices) {
  expect_stack(3, 17, 5, 33);
  expect_stack(1, 2, 5, 33);
}

TEST_P(Matmul, OfNothingIsZero) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
    expect_product(m, n, k);
  }
}

/// Rows of a tensor start where its memory does not.
TEST_P(Matmul, OfUnalignedRows) {
  const DeviceOperand a(GetParam().operands, {3, 5}, random_),
      b(GetParam().operands, {5, 2}, random_);
  for (const int64_t row : {0, 1, 2}) {
    expect_output(
        GetParam().result, {1, 2},
        [&](const Into& out) {
          test_backend().matmul(a.tensor.rows(row, row + 1), Transpose::no, b.tensor, Transpose::no,
                                out);
        },
        [&](int64_t column) {
          double sum = 0;
          for (int64_t j = 0; j < 5; ++j) sum += a[row * 5 + j] * b[j * 2 + column];
          return sum;
        },
        bound(5), "a row");
  }
}

INSTANTIATE_TEST_SUITE_P(MatmulTypes, Matmul,
                         ::testing::Values(MatmulTypes{"f64", DType::f64, DType::f64},
                                           MatmulTypes{"f32", DType::f32, DType::f32},
                                           MatmulTypes{"bf16", DType::bf16, DType::bf16},
                                           MatmulTypes{"bf16_to_f32", DType::bf16, DType::f32}),
                         [](const auto& each) { return std::string(each.param.name); });

/// 1 + 2^-12 has more bits of mantissa than TF32.
TEST(MatmulArithmetic, FactorsAreRoundedToTf32WhereThatIsAllowed) {
  const int64_t n = 64;
  const std::vector<double> fine(static_cast<size_t>(n * n), 1 + 0x1p-12);
  const std::vector<double> ones(static_cast<size_t>(n * n), 1.0);
  const auto first_element = [&](DType type, bool tf32) {
    test_backend().set_arithmetic({.deterministic = true, .tf32 = tf32});
    const Tensor out = there(as(type, ones, {n, n}));
    test_backend().matmul(there(as(type, fine, {n, n})), Transpose::no,
                          there(as(type, ones, {n, n})), Transpose::no, Into{out});
    test_backend().set_arithmetic({});
    return to_doubles(out).front();
  };
  const auto count = static_cast<double>(n);
  const double exact = count * (1 + 0x1p-12), rounded = count;
  EXPECT_EQ(first_element(DType::f32, false), exact);
  const double allowed = first_element(DType::f32, true);
  if (test_device() == kCpu || test_device_is_a_double()) {
    EXPECT_EQ(allowed, test_device() == kCpu ? exact : rounded);
  } else {
    EXPECT_TRUE(allowed == exact || allowed == rounded) << allowed;
  }
  EXPECT_EQ(first_element(DType::f64, true), exact);
}

}  // namespace
}  // namespace headroom::testing
