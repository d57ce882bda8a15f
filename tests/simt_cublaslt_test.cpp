// What cuBLASLt's double refuses, as the library's documentation says that the library does.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <utility>

namespace headroom::testing {
namespace {

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
  cublasStatus_t choose(int asked = 1) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle_, &description_, &a_, &b_, &d_, &d_, preference_,
                                          asked, &result_, &found);
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
  alignas(256) float memory_[256] = {};
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

/// CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, _C_ and _D_.
TEST_F(CublasLtDouble, RefusesThatOfEveryMatrix) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  for (int spoilt = 0; spoilt < 4; ++spoilt) {
    const auto at = [&](int matrix) { return memory_ + 64 * matrix + (spoilt == matrix ? 1 : 0); };
    EXPECT_EQ(
        cublasLtMatmul(handle_, &description_, &one, at(0), &a_, at(1), &b_, &zero, at(2), &d_,
                       at(3), &d_, &result_.algo, workspace_, sizeof workspace_, nullptr),
        CUBLAS_STATUS_INVALID_VALUE)
        << spoilt;
  }
}

/// The same alignments are those of "possibly other strides": of the step from one matrix of a
/// stack to the next.
TEST_F(CublasLtDouble, RefusesStepsLessAlignedThanTheAlgorithmWasChosenFor) {
  for (cublasLtMatrixLayoutOpaque_t* matrix : {&a_, &b_, &d_}) {
    for (cublasLtMatrixLayoutOpaque_t* each : {&a_, &b_, &d_}) {
      each->batch = 2;
      each->batch_step = 64;
    }
    ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
    matrix->batch_step = 16;
    EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
  }
}

/// cublasLtMatmul: the workspace's address is a multiple of 16 bytes.
TEST_F(CublasLtDouble, RefusesAWorkspaceBetweenMultiplesOf16Bytes) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  EXPECT_EQ(cublasLtMatmul(handle_, &description_, &one, memory_, &a_, memory_ + 64, &b_, &zero,
                           memory_ + 128, &d_, memory_ + 128, &d_, &result_.algo, workspace_ + 8,
                           sizeof workspace_, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
}

/// cublasLtMatmulAlgoGetHeuristic: at least one algorithm is asked for.
TEST_F(CublasLtDouble, RefusesToChooseNone) { EXPECT_EQ(choose(0), CUBLAS_STATUS_INVALID_VALUE); }

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
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_INITIALIZED);
  std::swap(handle_, none);
}

}  // namespace
}  // namespace headroom::testing
