// What cuBLASLt's double refuses, as the library's documentation says that the library does.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

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
  cublasStatus_t choose(int asked = 1) { return choose_to_add(d_, asked); }
  /// For a product that is added to a matrix of this layout.
  cublasStatus_t choose_to_add(cublasLtMatrixLayoutOpaque_t c, int asked = 1) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle_, &description_, &a_, &b_, &c, &d_, preference_,
                                          asked, &result_, &found);
  }
  cublasStatus_t multiply() {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_, &description_, &one, a_at_, &a_, b_at_, &b_, &zero, c_at_, &d_,
                          d_at_, &d_, &result_.algo, workspace_at_, workspace_bytes_, nullptr);
  }
  void set_epilogue(uint32_t epilogue, const float* bias) {
    cublasLtMatmulDescSetAttribute(&description_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                   sizeof epilogue);
    cublasLtMatmulDescSetAttribute(&description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                   sizeof bias);
  }

  cublasLtMatmulDescOpaque_t description_{CUBLAS_COMPUTE_32F, CUDA_R_32F, CUBLAS_OP_N, CUBLAS_OP_N};
  cublasLtMatrixLayoutOpaque_t a_{CUDA_R_32F, 3, 4, 3, 0, 1}, b_{CUDA_R_32F, 4, 2, 4, 0, 1},
      d_{CUDA_R_32F, 3, 2, 3, 0, 1};
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t result_{};
  alignas(256) float memory_[320] = {};
  alignas(256) std::byte workspace_[1024];
  float *a_at_ = memory_, *b_at_ = memory_ + 64, *c_at_ = memory_ + 128, *d_at_ = memory_ + 128;
  float* bias_ = memory_ + 256;
  std::byte* workspace_at_ = workspace_;
  size_t workspace_bytes_ = sizeof workspace_;
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

TEST_F(CublasLtDouble, RefusesToAddToAMatrixOfAnotherShapeOrType) {
  cublasLtMatrixLayoutOpaque_t c = d_;
  EXPECT_EQ(choose_to_add(c), CUBLAS_STATUS_SUCCESS);
  c.columns = 3;
  EXPECT_EQ(choose_to_add(c), CUBLAS_STATUS_INVALID_VALUE);
  c = d_;
  c.rows = 2;
  EXPECT_EQ(choose_to_add(c), CUBLAS_STATUS_INVALID_VALUE);
  c = d_;
  c.batch = 2;
  EXPECT_EQ(choose_to_add(c), CUBLAS_STATUS_INVALID_VALUE);
  c = d_;
  c.type = CUDA_R_16BF;
  EXPECT_EQ(choose_to_add(c), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtDouble, RefusesMatricesWithoutRows) {
  a_.columns = b_.rows = 0;
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesStacksOfDifferentSizes) {
  a_.batch = 2;
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesStacksOfNone) {
  a_.batch = b_.batch = d_.batch = 0;
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
}

/// The product itself looks as well, whatever its algorithm was chosen for.
TEST_F(CublasLtDouble, RefusesToMultiplyWhatItWouldChooseNothingFor) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  b_.leading = 3;
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
  b_.leading = 4;
  b_.type = CUDA_R_16BF;
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtDouble, RefusesTypesThatItsTableLacks) {
  description_.scale = CUDA_R_64F;
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  description_.scale = CUDA_R_32F;
  a_.type = CUDA_R_16BF;
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  b_.type = CUDA_R_16BF;
  EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  d_.type = CUDA_R_16BF;
  EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  a_.type = b_.type = CUDA_R_32F;
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  a_.type = b_.type = CUDA_R_16BF;
  for (const cublasComputeType_t compute : {CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32}) {
    description_.compute = compute;
    EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

TEST_F(CublasLtDouble, RefusesPointersLessAlignedThanTheAlgorithmWasChosenFor) {
  float** const pointers[] = {&a_at_, &b_at_, &c_at_, &d_at_};
  for (int which = 0; which < 4; ++which) {
    ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
    ++*pointers[which];
    EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE) << which;
    const uint32_t four = 4;
    cublasLtMatmulPreferenceSetAttribute(preference_,
                                         static_cast<cublasLtMatmulPreferenceAttributes_t>(
                                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + which),
                                         &four, sizeof four);
    ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS) << which;
  }
}

/// The same alignments are those of "possibly other strides": of the step from one matrix of a
/// stack to the next.
TEST_F(CublasLtDouble, RefusesStacksWhoseStepsAreLessAligned) {
  a_.batch = b_.batch = d_.batch = 2;
  a_.batch_step = b_.batch_step = d_.batch_step = 64;
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  for (cublasLtMatrixLayoutOpaque_t* const layout : {&a_, &b_, &d_}) {
    layout->batch_step = 12;
    EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
    layout->batch_step = 64;
  }
}

TEST_F(CublasLtDouble, RefusesLessWorkspaceThanTheAlgorithmWants) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  workspace_bytes_ = 512;
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
}

/// To 256 bytes.
TEST_F(CublasLtDouble, RefusesAWorkspaceThatIsNotAligned) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  workspace_at_ += 128;
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesToFindLessThanOneAlgorithm) {
  EXPECT_EQ(choose(0), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, AddsABiasToEachColumn) {
  std::fill_n(a_at_, 12, 1.0F);
  std::fill_n(b_at_, 8, 1.0F);
  std::iota(bias_, bias_ + 3, 10.0F);
  set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias_);
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(std::vector<float>(d_at_, d_at_ + 6), (std::vector<float>{14, 15, 16, 14, 15, 16}));
}

TEST_F(CublasLtDouble, RefusesABiasThatIsNowhere) {
  set_epilogue(CUBLASLT_EPILOGUE_BIAS, nullptr);
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesABiasLessAlignedThanTheOneTheAlgorithmWasChosenFor) {
  set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias_);
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias_ + 4);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasLtDouble, RefusesABiasThatBeginsAmidAWideLoad) {
  set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias_ + 1);
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesAnAlgorithmThatWasChosenForAnotherEpilogue) {
  ASSERT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias_);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtDouble, RefusesEpiloguesThatItDoesNotCompute) {
  constexpr uint32_t kRelu = 2;
  set_epilogue(kRelu, nullptr);
  EXPECT_EQ(choose(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtDouble, RefusesAnAttributeOfAnotherSize) {
  const int64_t wide = CUBLAS_OP_T;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(&description_, CUBLASLT_MATMUL_DESC_TRANSA, &wide,
                                           sizeof wide),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtDouble, RefusesAnAttributeWithoutAValue) {
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(&description_, CUBLASLT_MATMUL_DESC_TRANSA, nullptr,
                                           sizeof(int32_t)),
            CUBLAS_STATUS_INVALID_VALUE);
}

/// CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_MATRIX_LAYOUT_ORDER and
/// CUBLASLT_MATMUL_PREF_SEARCH_MODE, which nothing here sets.
TEST_F(CublasLtDouble, RefusesAttributesThatItLacks) {
  const int32_t value = 0;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(
                &description_, static_cast<cublasLtMatmulDescAttributes_t>(2), &value, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(&a_, static_cast<cublasLtMatrixLayoutAttribute_t>(1),
                                             &value, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                preference_, static_cast<cublasLtMatmulPreferenceAttributes_t>(0), &value, 4),
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
