// cuBLASLt's double: products by sums in float64, and the refusals of the cuBLAS documentation
// (section "Using the cuBLASLt API"), each where it is checked.
#include "cublasLt.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/dtype.h"
#include "tests/simt/host_keeps_out.h"

struct cublasLtContext {};

namespace {

constexpr uint64_t kWorkspaceOfAlgorithm = uint64_t{1} << 16;

/// cublasLtMatmul's table of supported types, the rows that this project uses: f64 throughout; f32
/// throughout, with TF32 too; bf16 operands with a bf16 or f32 result, computed and scaled in f32.
bool types_are_supported(const cublasLtMatmulDescOpaque_t& description,
                         const cublasLtMatrixLayoutOpaque_t& a,
                         const cublasLtMatrixLayoutOpaque_t& b,
                         const cublasLtMatrixLayoutOpaque_t& c,
                         const cublasLtMatrixLayoutOpaque_t& d) {
  if (a.type != b.type || c.type != d.type) {
    return false;
  }
  if (description.compute == CUBLAS_COMPUTE_64F) {
    return description.scale == CUDA_R_64F && a.type == CUDA_R_64F && d.type == CUDA_R_64F;
  }
  if (description.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    return description.scale == CUDA_R_32F && a.type == CUDA_R_32F && d.type == CUDA_R_32F;
  }
  return description.scale == CUDA_R_32F &&
         ((a.type == CUDA_R_32F && d.type == CUDA_R_32F) ||
          (a.type == CUDA_R_16BF && (d.type == CUDA_R_16BF || d.type == CUDA_R_32F)));
}

/// "CUBLAS_STATUS_NOT_SUPPORTED if the current implementation [...] doesn't support the configured
/// operation": the double's knows one epilogue, which all the rows above allow, in the type of D.
bool epilogue_is_supported(const cublasLtMatmulDescOpaque_t& description) {
  return description.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
         description.epilogue == CUBLASLT_EPILOGUE_BIAS;
}

/// CUBLASLT_MATRIX_LAYOUT_LD: "must be large enough so that matrix memory locations are not
/// overlapping (e.g. greater or equal to CUBLASLT_MATRIX_LAYOUT_ROWS in case of
/// CUBLASLT_ORDER_COL)". A matrix without rows or columns is an impossible configuration.
bool is_valid(const cublasLtMatrixLayoutOpaque_t& m) {
  return m.rows > 0 && m.columns > 0 && m.leading >= static_cast<int64_t>(m.rows) && m.batch > 0;
}

/// D = op(A) op(B) in shapes, and as many matrices in each stack (CUBLASLT_MATRIX_LAYOUT_
/// BATCH_COUNT).
bool shapes_agree(const cublasLtMatmulDescOpaque_t& description,
                  const cublasLtMatrixLayoutOpaque_t& a, const cublasLtMatrixLayoutOpaque_t& b,
                  const cublasLtMatrixLayoutOpaque_t& c, const cublasLtMatrixLayoutOpaque_t& d) {
  const bool ta = description.operation_a == CUBLAS_OP_T;
  const bool tb = description.operation_b == CUBLAS_OP_T;
  const uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  const uint64_t k_of_b = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
  return k == k_of_b && d.rows == m && d.columns == n && c.rows == m && c.columns == n &&
         a.batch == d.batch && b.batch == d.batch && c.batch == d.batch;
}

cublasStatus_t accepts(const cublasLtMatmulDescOpaque_t& description,
                       const cublasLtMatrixLayoutOpaque_t& a, const cublasLtMatrixLayoutOpaque_t& b,
                       const cublasLtMatrixLayoutOpaque_t& c,
                       const cublasLtMatrixLayoutOpaque_t& d) {
  if (!is_valid(a) || !is_valid(b) || !is_valid(c) || !is_valid(d) ||
      !shapes_agree(description, a, b, c, d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return types_are_supported(description, a, b, c, d) && epilogue_is_supported(description)
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

double read(const void* matrix, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(matrix)[i];
    case CUDA_R_32F:
      return static_cast<const float*>(matrix)[i];
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const headroom::bf16*>(matrix)[i]);
  }
  return 0;
}

void write(void* matrix, cudaDataType_t type, int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(matrix)[i] = value;
      break;
    case CUDA_R_32F:
      static_cast<float*>(matrix)[i] = static_cast<float>(value);
      break;
    case CUDA_R_16BF:
      static_cast<headroom::bf16*>(matrix)[i] = headroom::bf16(static_cast<float>(value));
      break;
  }
}

/// CUBLASLT_MATMUL_DESC_BIAS_POINTER: "Routines that don't dereference this pointer, like
/// cublasLtMatmulAlgoGetHeuristic() depend on its value to determine expected pointer alignment":
/// the largest power of two up to 256 that it is a multiple of.
uint64_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer) | 256;
  return address & (~address + 1);
}

int64_t bytes_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

template <class Value>
cublasStatus_t set(Value& to, const void* value, size_t bytes) {
  // cublasLt*SetAttribute(): "CUBLAS_STATUS_INVALID_VALUE if buf is NULL or sizeInBytes doesn't
  // match size of internal storage for selected attribute". Of attributes that the double lacks no
  // size is right.
  if (value == nullptr || bytes != sizeof(Value)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

size_t cublasLtGetVersion() { return 130000; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
  }
  return "unknown";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  *description = new cublasLtMatmulDescOpaque_t{
      .compute = compute, .scale = scale, .operation_a = CUBLAS_OP_N, .operation_b = CUBLAS_OP_N};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(description->operation_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(description->operation_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(description->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(description->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, leading, 0, 1};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout->batch_step, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  // Defaults: no workspace, buffers aligned to 256 bytes (cublasLtMatmulPreferenceAttributes_t).
  *preference = new cublasLtMatmulPreferenceOpaque_t{0, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                 value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

/// Where an algorithm keeps what it was chosen for, after the alignments of A, B, C and D.
enum Promise { kWorkspace = 4, kBiasAlignment, kEpilogue };

/// The algorithm asks for workspace where it may.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (handle == nullptr) {  // "if cuBLASLt handle has not been initialized"
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  if (asked <= 0) {  // "if requestedAlgoCount is less or equal to zero"
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cublasStatus_t status = accepts(*description, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const uint64_t workspace = std::min(preference->workspace, kWorkspaceOfAlgorithm);
  results[0] = {};
  std::copy_n(preference->alignment, 4, results[0].algo.data);
  results[0].algo.data[kWorkspace] = workspace;
  results[0].algo.data[kBiasAlignment] = alignment_of(description->bias);
  results[0].algo.data[kEpilogue] = description->epilogue;
  results[0].workspaceSize = workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

/// Rounded to 10 bits of mantissa, to nearest with ties away from zero (PTX ISA, cvt.rna.tf32.f32).
double to_tf32(double x) {
  constexpr uint32_t kHalf = 1U << 12, kDropped = (1U << 13) - 1;
  const uint32_t bits = (std::bit_cast<uint32_t>(static_cast<float>(x)) + kHalf) & ~kDropped;
  return std::bit_cast<float>(bits);
}

struct Operand {
  const void* matrix;
  cublasLtMatrixLayoutOpaque_t layout;
  /// Element (row, column) of matrix s, by columns.
  double at(int64_t s, int64_t row, int64_t column) const {
    return read(matrix, layout.type, s * layout.batch_step + column * layout.leading + row);
  }
  double at(int64_t s, int64_t row, int64_t column, int32_t operation) const {
    return operation == CUBLAS_OP_T ? at(s, column, row) : at(s, row, column);
  }
  /// CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*: what an algorithm may count on, "required for buffer
  /// pointer, leading dimension, and possibly other strides"; a leading dimension is part of the
  /// layout that the algorithm was chosen for.
  bool is_aligned(uint64_t bytes) const {
    const auto step = static_cast<uint64_t>(layout.batch_step * bytes_of(layout.type));
    return reinterpret_cast<uintptr_t>(matrix) % bytes == 0 &&
           (layout.batch == 1 || step % bytes == 0);
  }
};

/// What CUBLASLT_EPILOGUE_BIAS asks of a product with an algorithm.
cublasStatus_t bias_is_right(const cublasLtMatmulDescOpaque_t& description,
                             const cublasLtMatmulAlgo_t& algorithm) {
  // CUBLASLT_ALGO_CAP_EPILOGUE_MASK: which epilogues an algorithm supports is its own, so that one
  // chosen for another may not have this.
  if (algorithm.data[kEpilogue] != description.epilogue) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // "if the parameters are unexpectedly NULL", and the alignment that the algorithm counts on. Of
  // less than 16 bytes, the widest load, nothing documents that any algorithm reads it.
  constexpr uint64_t kWidestLoad = 16;
  const uint64_t least = std::max(kWidestLoad, algorithm.data[kBiasAlignment]);
  const bool wrong = description.bias == nullptr || alignment_of(description.bias) < least;
  return description.epilogue == CUBLASLT_EPILOGUE_BIAS && wrong ? CUBLAS_STATUS_INVALID_VALUE
                                                                 : CUBLAS_STATUS_SUCCESS;
}

/// All that a product needs, by value: a graph computes it when the caller's are gone.
struct Product {
  cublasLtMatmulDescOpaque_t description;
  double times, plus;
  Operand first, second, before, result;
  void* to;

  void compute() const {
    const simt::DeviceAtWork at_work;
    const cublasLtMatrixLayoutOpaque_t& d = result.layout;
    const auto depth = static_cast<int64_t>(
        description.operation_a == CUBLAS_OP_T ? first.layout.rows : first.layout.columns);
    const bool tf32 = description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const auto rows = static_cast<int64_t>(d.rows), columns = static_cast<int64_t>(d.columns);
    for (int64_t s = 0; s < d.batch; ++s) {
      for (int64_t i = 0; i < rows * columns; ++i) {
        const int64_t row = i % rows, column = i / rows;
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          const double a = first.at(s, row, k, description.operation_a),
                       b = second.at(s, k, column, description.operation_b);
          sum += tf32 ? to_tf32(a) * to_tf32(b) : a * b;
        }
        // "if beta is 0, C does not have to be a valid input" (cublasGemmEx, of which this is the
        // general form): NaN there must not spread.
        sum = times * sum + (plus == 0 ? 0 : plus * before.at(s, row, column));
        // "Bias vector length must match matrix D rows, it must be packed [...]. Bias vector is
        // broadcasted to all columns" (cublasLt.h, CUBLASLT_EPILOGUE_BIAS); its "elements are the
        // same type as the elements of output matrix" (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE).
        if (description.epilogue == CUBLASLT_EPILOGUE_BIAS) {
          sum += read(description.bias, d.type, row);
        }
        write(to, d.type, s * d.batch_step + column * d.leading + row, sum);
      }
    }
  }
};

}  // namespace

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  const cublasStatus_t status = accepts(*description, *a_layout, *b_layout, *c_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const Operand first{a, *a_layout}, second{b, *b_layout}, before{c, *c_layout};
  const Operand result{d, *d_layout};
  const uint64_t(&promised)[8] = algorithm->data;
  // "when workspaceSizeInBytes is less than workspace required by configured algo"; the workspace
  // "must be 256B aligned" (cublasLtMatmul, parameter workspace).
  if (workspace_bytes < promised[kWorkspace] || reinterpret_cast<uintptr_t>(workspace) % 256 != 0 ||
      !first.is_aligned(promised[0]) || !second.is_aligned(promised[1]) ||
      !before.is_aligned(promised[2]) || !result.is_aligned(promised[3])) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cublasStatus_t bias = bias_is_right(*description, *algorithm);
  if (bias != CUBLAS_STATUS_SUCCESS) {
    return bias;
  }
  const Product product{*description,
                        read(alpha, description->scale, 0),
                        read(beta, description->scale, 0),
                        first,
                        second,
                        before,
                        result,
                        d};
  return simt::run_in_order(stream,
                            [product] {
                              product.compute();
                              return cudaSuccess;
                            }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
