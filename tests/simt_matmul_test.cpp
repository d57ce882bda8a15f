// The GPU's products over cuBLASLt's double, against sums in float64; and what the double refuses.
#include "kernels/cuda/matmul.h"

#include <cublasLt.h>

#include "tests/kernel_operands.h"
#include "tests/simt/gpu.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;
using kernels::Into;
using kernels::Transpose;
using kernels::Weights;

struct Types {
  const char* name;
  DType operands, result;
};
std::ostream& operator<<(std::ostream& out, const Types& t) { return out << t.name; }

class CudaMatmul : public ::testing::TestWithParam<Types> {
 protected:
  static double bound() {
    if (GetParam().result == DType::bf16) return kActivationTypes[2].tolerance;
    return GetParam().result == DType::f64 ? 1e-14 : 1e-6;
  }
  Operand draw(const Shape& shape) { return {GetParam().operands, shape, random_}; }

  /// A stack of products, or with stack 0 one of matrices.
  void expect_product(int64_t stack, int64_t m, int64_t n, int64_t k, Transpose ta, Transpose tb) {
    const int64_t count = std::max<int64_t>(stack, 1);
    const auto shape = [&](int64_t rows, int64_t columns) {
      return stack == 0 ? Shape{rows, columns} : Shape{stack, rows, columns};
    };
    const Operand a = draw(ta == Transpose::no ? shape(m, k) : shape(k, m));
    const Operand b = draw(tb == Transpose::no ? shape(k, n) : shape(n, k));
    const auto expected = [&](int64_t i) {
      const int64_t s = i / (m * n), row = i / n % m, column = i % n;
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        sum += a[s * m * k + (ta == Transpose::no ? row * k + j : j * m + row)] *
               b[s * k * n + (tb == Transpose::no ? j * n + column : column * k + j)];
      }
      return sum;
    };
    for (const bool add : {false, true}) {
      const Operand before(GetParam().result, shape(m, n), random_);
      Tensor out =
          add ? before.tensor.to(gpu())
              : as(GetParam().result, std::vector<double>(static_cast<size_t>(count * m * n), NAN),
                   shape(m, n))
                    .to(gpu());
      cuda::matmul(a.tensor.to(gpu()), ta, b.tensor.to(gpu()), tb, {out, add});
      expect_elements(
          out.to(kCpu), [&](int64_t i) { return expected(i) + (add ? before[i] : 0); }, bound(),
          fmt::format("stack {} k {} ta {} tb {} add {}", stack, k, ta == Transpose::yes,
                      tb == Transpose::yes, add));
    }
  }
  void expect_products(int64_t stack, int64_t m, int64_t n, int64_t k) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        expect_product(stack, m, n, k, ta, tb);
      }
    }
  }
  std::mt19937 random_{1};
};

TEST_P(CudaMatmul, EqualsSumsInFloat64) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {3, 17, 65}, {17, 65, 3}, {65, 3, 17}, {8, 16, 32}}) {
    expect_products(0, m, n, k);
  }
}

TEST_P(CudaMatmul, OfStacksIsThatOfTheirMatrices) {
  expect_products(3, 17, 5, 33);
  expect_products(1, 2, 5, 33);
}

TEST_P(CudaMatmul, OfNothingIsZero) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
    expect_products(0, m, n, k);
  }
}

/// Rows of a tensor start where its memory does not: the same shape is planned for each alignment.
TEST_P(CudaMatmul, OfUnalignedRowsIsPlannedForThem) {
  const Operand a = draw({3, 5}), b = draw({5, 2});
  const Tensor all = a.tensor.to(gpu()), second = b.tensor.to(gpu());
  for (const int64_t row : {0, 1, 2}) {
    Tensor out = Tensor::empty({1, 2}, GetParam().result, gpu());
    cuda::matmul(all.rows(row, row + 1), Transpose::no, second, Transpose::no, {out, false});
    expect_elements(
        out.to(kCpu),
        [&](int64_t column) {
          double sum = 0;
          for (int64_t j = 0; j < 5; ++j) sum += a[row * 5 + j] * b[j * 2 + column];
          return sum;
        },
        bound(), "a row");
  }
}

/// With few rows and with many, of weights that have x's type.
TEST_P(CudaMatmul, MakesLinearOfAnyNumberOfRows) {
  for (const int64_t rows : {1, 8, 9, 20}) {
    const Operand x = draw({rows, 40}), w = draw({6, 40}), w2 = draw({3, 40});
    const std::vector<Weights> weights = {{w.tensor.to(gpu()), {}}, {w2.tensor.to(gpu()), {}}};
    std::vector<Tensor> y = {Tensor::empty({rows, 6}, GetParam().result, gpu()),
                             Tensor::empty({rows, 3}, GetParam().result, gpu())};
    cuda::linear(x.tensor.to(gpu()), weights, y);
    for (size_t i = 0; i < 2; ++i) {
      const Operand& matrix = i == 0 ? w : w2;
      const int64_t outputs = y[i].dim(1);
      expect_elements(
          y[i].to(kCpu),
          [&](int64_t at) {
            double sum = 0;
            for (int64_t j = 0; j < 40; ++j) {
              sum += x[at / outputs * 40 + j] * matrix[at % outputs * 40 + j];
            }
            return sum;
          },
          bound(), fmt::format("linear of {} rows", rows));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaMatmul,
                         ::testing::Values(Types{"f64", DType::f64, DType::f64},
                                           Types{"f32", DType::f32, DType::f32},
                                           Types{"bf16", DType::bf16, DType::bf16},
                                           Types{"bf16_to_f32", DType::bf16, DType::f32}),
                         [](const auto& each) { return std::string(each.param.name); });

/// A product of a 3 x 4 matrix with a 4 x 2, by columns in f32, all right until a test spoils it.
class CublasLtDouble : public ::testing::Test {
 protected:
  void SetUp() override {
    cublasLtCreate(&handle_);
    cublasLtMatmulPreferenceCreate(&preference_);
    const auto workspace = static_cast<uint64_t>(sizeof workspace_);
    cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
  }
  void TearDown() override {
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtDestroy(handle_);
  }
  cublasStatus_t choose() {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle_, &description_, &a_, &b_, &d_, &d_, preference_,
                                          1, &result_, &found);
  }
  cublasStatus_t multiply(int a_offset = 0, size_t workspace = sizeof workspace_) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_, &description_, &one, memory_ + a_offset, &a_, memory_ + 64, &b_,
                          &zero, memory_ + 128, &d_, memory_ + 128, &d_, &result_.algo, workspace_,
                          workspace, nullptr);
  }

  cublasLtMatmulDescOpaque_t description_{CUBLAS_COMPUTE_32F, CUDA_R_32F, CUBLAS_OP_N, CUBLAS_OP_N};
  cublasLtMatrixLayoutOpaque_t a_{CUDA_R_32F, 3, 4, 3, 0, 1}, b_{CUDA_R_32F, 4, 2, 4, 0, 1},
      d_{CUDA_R_32F, 3, 2, 3, 0, 1};
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t result_{};
  alignas(256) float memory_[192] = {};
  alignas(16) std::byte workspace_[1024];
};

TEST_F(CublasLtDouble, TakesWhatIsRight) {
  EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtDouble, RefusesALeadingDimensionShorterThanAColumn) {
  a_.leading = 2;
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesShapesThatDoNotMeet) {
  description_.operation_a = CUBLAS_OP_T;
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesMatricesWithoutRows) {
  a_.columns = b_.rows = 0;
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesStacksOfDifferentSizes) {
  a_.batch = 2;
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesTypesThatItsTableLacks) {
  description_.scale = CUDA_R_64F;
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  description_.scale = CUDA_R_32F;
  a_.type = CUDA_R_16BF;
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  b_.type = CUDA_R_16BF;
  EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  description_.compute = CUBLAS_COMPUTE_64F;
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtDouble, RefusesPointersLessAlignedThanTheAlgorithmWasChosenFor) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(1), CUBLAS_STATUS_INVALID_VALUE);
  const uint32_t four = 4;
  cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                       &four, sizeof four);
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(1), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtDouble, RefusesLessWorkspaceThanTheAlgorithmWants) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(0, 512), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesAnAttributeOfAnotherSize) {
  const int64_t wide = CUBLAS_OP_T;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(&description_, CUBLASLT_MATMUL_DESC_TRANSA, &wide,
                                           sizeof wide),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesAHandleThatWasNotMade) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  cublasLtHandle_t none = nullptr;
  std::swap(handle_, none);
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_INITIALIZED);
  std::swap(handle_, none);
}

}  // namespace
}  // namespace headroom::testing
