// cuBLASLt stores matrices by columns: our row-major x is its transpose there. out^T = op(b)^T
// op(a)^T, so b is its first operand and a its second, each with the transposition it has here.
#include "kernels/cuda/cuda_backend.h"

#include <cublasLt.h>

#include <algorithm>
#include <memory>

#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/runtime.h"

namespace headroom::kernels::cuda {

namespace {

void check_blas(cublasStatus_t status, const char* what) {
  check(status == CUBLAS_STATUS_SUCCESS, "[cuda] cuBLASLt: {} failed: {}", what,
        cublasLtGetStatusString(status));
}

/// What tells one product's plan from another's.
struct Product {
  int64_t stack, m, n, k;
  Transpose ta, tb;
  DType operands, result;
  bool tf32;
  uint32_t a_alignment, b_alignment, out_alignment;  // bytes
  uint32_t bias_alignment;                           // 0: there is none
  // clang-tidy 14 takes the 0 inside a defaulted <=> for a pointer.
  auto operator<=>(const Product&) const = default;  // NOLINT(modernize-use-nullptr)
};

cudaDataType_t blas_type(DType type) {
  switch (type) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    default:
      return CUDA_R_16BF;
  }
}

/// The largest power of two up to 256 that every matrix of a stack starts at a multiple of: the
/// heuristics' default, 256 bytes, would choose kernels that rows of an odd length break.
uint32_t alignment(const void* start, int64_t matrix_bytes) {
  const uint64_t both = reinterpret_cast<uintptr_t>(start) | static_cast<uint64_t>(matrix_bytes);
  return static_cast<uint32_t>(std::min<uint64_t>(256, both & (~both + 1)));
}

using Description =
    std::unique_ptr<cublasLtMatmulDescOpaque_t, cublasStatus_t (*)(cublasLtMatmulDesc_t)>;
using Layout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, cublasStatus_t (*)(cublasLtMatrixLayout_t)>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                                   cublasStatus_t (*)(cublasLtMatmulPreference_t)>;

int32_t operation(Transpose t) { return t == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N; }

template <class Value>
void set_attribute(const Description& description, cublasLtMatmulDescAttributes_t attribute,
                   const Value& value) {
  check_blas(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value),
             "describing a product");
}

/// The alignment of the bias is not among the preferences: choosing an algorithm takes it from the
/// pointer (cublasLt.h, CUBLASLT_MATMUL_DESC_BIAS_POINTER).
///
/// Of the epilogues this one saves a pass in every model. BGRADB would overwrite the gradient of a
/// bias, to which each micro-batch adds. GELU_AUX and DGELU know that activation alone; what they
/// save, by its bytes 2 to 3 % of a step of GPT-2 124M, is not taken yet.
Description describe(const Product& p, const void* bias) {
  const bool doubles = p.operands == DType::f64;
  const cublasComputeType_t type = doubles  ? CUBLAS_COMPUTE_64F
                                   : p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t made = nullptr;
  check_blas(cublasLtMatmulDescCreate(&made, type, doubles ? CUDA_R_64F : CUDA_R_32F),
             "describing a product");
  Description description(made, cublasLtMatmulDescDestroy);
  set_attribute(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(p.tb));
  set_attribute(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(p.ta));
  if (p.bias_alignment != 0) {
    // out^T has as many rows as the bias has numbers.
    set_attribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
    set_attribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return description;
}

/// A stack of row-major (rows, columns) matrices as they lie in memory.
Layout layout(int64_t stack, int64_t rows, int64_t columns, DType type) {
  cublasLtMatrixLayout_t made = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&made, blas_type(type), static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), columns),
             "describing a matrix");
  Layout result(made, cublasLtMatrixLayoutDestroy);
  const auto count = static_cast<int32_t>(stack);
  const int64_t step = rows * columns;
  check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count),
             "setting a stack's size");
  check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &step, sizeof step),
             "setting a stack's step");
  return result;
}

Layout layout(int64_t stack, int64_t rows, int64_t columns, Transpose t, DType type) {
  return t == Transpose::no ? layout(stack, rows, columns, type)
                            : layout(stack, columns, rows, type);
}

/// cuBLASLt and the plans made so far: choosing an algorithm takes longer than many products.
class CublasLt {
 public:
  CublasLt() {
    check_blas(cublasLtCreate(&handle_), "starting");
    workspace_ = Tensor::empty({kWorkspace}, DType::i8, Device{Device::Type::cuda, 0});
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt() { cublasLtDestroy(handle_); }

  void run(const Product& p, const void* a, const void* b, const void* bias, void* out, bool add) {
    const Plan& plan =
        plans_.find(p, [&](const auto& problem) { return make_plan(problem, bias); });
    if (bias != nullptr) {
      set_attribute(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    const float one = 1, beta = add ? 1 : 0;
    const double one64 = 1, beta64 = beta;
    const bool doubles = p.operands == DType::f64;
    check_blas(cublasLtMatmul(handle_, plan.description.get(),
                              doubles ? static_cast<const void*>(&one64) : &one, b, plan.b.get(), a,
                              plan.a.get(), doubles ? static_cast<const void*>(&beta64) : &beta,
                              out, plan.out.get(), out, plan.out.get(), &plan.algorithm,
                              workspace_.raw(), kWorkspace, stream()),
               "a product");
  }

 private:
  /// What NVIDIA recommends for Hopper; 4 MiB would do before (cuBLAS documentation,
  /// cublasSetWorkspace).
  static constexpr int64_t kWorkspace = int64_t{32} << 20;
  /// Generating without a cache makes new ones at every token.
  static constexpr size_t kMostPlans = 512;

  struct Plan {
    Description description;
    Layout a, b, out;
    cublasLtMatmulAlgo_t algorithm;
  };

  Plan make_plan(const Product& p, const void* bias) const {
    Plan plan{describe(p, bias),
              layout(p.stack, p.m, p.k, p.ta, p.operands),
              layout(p.stack, p.k, p.n, p.tb, p.operands),
              layout(p.stack, p.m, p.n, p.result),
              {}};
    const Preference preference = prefer(p);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    check_blas(cublasLtMatmulAlgoGetHeuristic(handle_, plan.description.get(), plan.b.get(),
                                              plan.a.get(), plan.out.get(), plan.out.get(),
                                              preference.get(), 1, &found, &count),
               "choosing an algorithm");
    check(count == 1, "[cuda] cuBLASLt has no algorithm for ({}, {}) times ({}, {}) in {}", p.m,
          p.k, p.k, p.n, name_of(p.operands));
    plan.algorithm = found.algo;
    return plan;
  }

  static Preference prefer(const Product& p) {
    cublasLtMatmulPreference_t made = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&made), "making preferences");
    Preference preference(made, cublasLtMatmulPreferenceDestroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
                 "setting a preference");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.b_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.a_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.out_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.out_alignment);
    return preference;
  }

  cublasLtHandle_t handle_ = nullptr;
  Tensor workspace_;  // the stream's products use it one after another
  PlanCache<Product, Plan, kMostPlans> plans_;
};

/// A bias that every algorithm can read: nothing documents how one that begins in the midst of a
/// load of 16 bytes, the widest there is, is read.
Tensor aligned(const Tensor& bias) {
  constexpr uint32_t kWidestLoad = 16;
  return bias.defined() && alignment(bias.raw(), 0) < kWidestLoad ? bias.clone() : bias;
}

CublasLt& cublas() {
  static auto* instance = new CublasLt;  // never destroyed: the driver may be gone before it
  return *instance;
}

}  // namespace

void CudaBackend::matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
                         const Into& out) {
  multiply(a, ta, b, tb, Tensor(), out);
}

void CudaBackend::multiply(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
                           const Tensor& bias, const Into& out) {
  Tensor result = out.tensor;
  const int axis = a.rank() - 2;
  Product p{axis == 1 ? a.dim(0) : 1,
            result.dim(axis),
            result.dim(axis + 1),
            a.dim(ta == Transpose::no ? axis + 1 : axis),
            ta,
            tb,
            a.dtype(),
            result.dtype(),
            arithmetic_.tf32 && a.dtype() == DType::f32,
            0,
            0,
            0,
            bias.defined() ? alignment(bias.raw(), 0) : 0};
  if (result.numel() == 0) {
    return;
  }
  if (p.k == 0) {  // a sum of nothing; cuBLASLt has no matrices without rows
    if (!out.add) {
      check_call(cudaMemsetAsync(result.raw(), 0, result.nbytes(), stream()), "writing zeros");
    }
    return;
  }
  const auto operand = static_cast<int64_t>(size_of(p.operands));
  p.a_alignment = alignment(a.raw(), p.m * p.k * operand);
  p.b_alignment = alignment(b.raw(), p.k * p.n * operand);
  p.out_alignment = alignment(result.raw(), p.m * p.n * static_cast<int64_t>(size_of(p.result)));
  cublas().run(p, a.raw(), b.raw(), bias.defined() ? bias.raw() : nullptr, result.raw(), out.add);
}

void CudaBackend::linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) {
  const bool one_type = std::all_of(
      w.begin(), w.end(), [&](const Weights& each) { return each.values.dtype() == x.dtype(); });
  if (x.dtype() != DType::f64 && (x.dim(0) <= kFewRows || !one_type)) {
    few_rows(x, w, y);
    return;
  }
  for (size_t i = 0; i < w.size(); ++i) {
    multiply(x, Transpose::no, w[i].values, Transpose::yes, aligned(w[i].bias), {y[i]});
  }
}

}  // namespace headroom::kernels::cuda
