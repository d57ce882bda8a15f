// Matrix products: oneDNN for f32 and bf16, a plain loop for the f64 of gradient checks. Those with
// weights go to few_rows.cpp where there are so few rows that reading the weights is all that
// counts.
#include <dnnl.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/parallel.h"

namespace headroom::kernels::cpu {

namespace {

/// What tells one product's primitive from another's.
struct Product {
  int64_t stack, m, n, k;
  Transpose ta, tb;
  DType operands, result;
  bool add, bias;
  bool packed = false;  // the second matrix lies as OneDnn::pack() left it
  // clang-tidy 14 takes the 0 inside a defaulted <=> for a pointer.
  auto operator<=>(const Product&) const = default;  // NOLINT(modernize-use-nullptr)
};

dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(int64_t stack, int64_t rows, int64_t cols, Transpose t, DType dtype) {
  dnnl::memory::dims shape{rows, cols};
  dnnl::memory::dims strides =
      t == Transpose::no ? dnnl::memory::dims{cols, 1} : dnnl::memory::dims{1, rows};
  if (stack > 1) {
    shape.insert(shape.begin(), stack);
    strides.insert(strides.begin(), rows * cols);
  }
  return {shape, onednn_type(dtype), strides};
}

/// For its lifetime this thread's products are planned for itself alone, where `wanted`.
class OneThread {
 public:
  explicit OneThread(bool wanted) : before_(omp_get_max_threads()) {
    omp_set_num_threads(wanted ? 1 : before_);
  }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// oneDNN's engine and the primitives made so far; making one compiles code, so each is made once.
class OneDnn {
 public:
  void run(const Product& p, const void* a, const void* b, const void* bias, void* out) {
    const Entry& e = entry(p);
    // oneDNN takes non-const pointers for inputs it does not write.
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, {e.a, engine_, const_cast<void*>(a)}},
        {DNNL_ARG_WEIGHTS, {e.b, engine_, const_cast<void*>(b)}},
        {DNNL_ARG_DST, {e.out, engine_, out}}};
    if (p.bias) {
      arguments[DNNL_ARG_BIAS] = {e.bias, engine_, const_cast<void*>(bias)};
    }
    e.primitive.execute(stream_, arguments);
  }

  /// The second matrix in the layout that `packed` products read, panels of a few columns.
  Tensor pack(const Product& packed, const void* b) {
    const dnnl::memory::desc& layout = entry(packed).b;
    Tensor panels = Tensor::empty({static_cast<int64_t>(layout.get_size())}, DType::i8);
    dnnl::memory from(matrix(1, packed.k, packed.n, packed.tb, packed.operands), engine_,
                      const_cast<void*>(b));
    dnnl::memory to(layout, engine_, panels.raw());
    dnnl::reorder(from, to).execute(stream_, from, to);
    return panels;
  }

 private:
  /// Several times what training a model uses. Generating without a cache would make new ones at
  /// every token and keep them all.
  static constexpr size_t kMostPrimitives = 512;

  struct Entry {
    dnnl::memory::desc a, b, bias, out;
    dnnl::matmul primitive;
  };

  const Entry& entry(const Product& p) {
    auto it = cache_.find(p);
    if (it == cache_.end()) {
      if (cache_.size() == kMostPrimitives) {
        cache_.clear();
      }
      it = cache_.emplace(p, make(p)).first;
    }
    return it->second;
  }

  Entry make(const Product& p) const {
    // A product inside a parallel region is one thread's.
    const OneThread one(omp_in_parallel() != 0);
    const auto a = matrix(p.stack, p.m, p.k, p.ta, p.operands);
    const dnnl::memory::desc b = p.packed ? dnnl::memory::desc({p.k, p.n}, onednn_type(p.operands),
                                                               dnnl::memory::format_tag::any)
                                          : matrix(p.stack, p.k, p.n, p.tb, p.operands);
    const dnnl::memory::desc none;
    const auto bias = p.bias ? matrix(1, 1, p.n, Transpose::no, p.result) : none;
    const auto out = matrix(p.stack, p.m, p.n, Transpose::no, p.result);
    dnnl::primitive_attr attributes;
    if (p.add) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine_, a, b, bias, out, attributes);
#else
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, bias, out), attributes,
                                                   engine_);
#endif
    return {a, description.weights_desc(), bias, out, dnnl::matmul(description)};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Product, Entry> cache_;
};

/// Each thread that multiplies has its own: neither the map nor oneDNN's scratch is for sharing.
OneDnn& onednn() {
  thread_local OneDnn mine;
  return mine;
}

// oneDNN packs a second matrix anew for every block of rows, or reads it where it lies; with rows
// whole pages apart, as of 3072 numbers, what is read then falls into few sets of the first cache.

/// Rows below which packing a matrix first costs what it saves.
constexpr int64_t kRowsForPacking = 256;

/// Whether the second matrix is packed once, before the product. In bf16 AMX then got slower.
bool packs(const Product& p) {
  return p.stack == 1 && p.operands == DType::f32 && p.m >= kRowsForPacking &&
         omp_in_parallel() == 0;
}

/// A product left to oneDNN's own division among the threads.
void multiply_whole(Product p, const void* a, const void* b, const void* bias, void* out) {
  p.packed = packs(p);
  const Tensor panels = p.packed ? onednn().pack(p, b) : Tensor();
  onednn().run(p, a, p.packed ? panels.raw() : b, bias, out);
}

// Threads keep to their rows. Every kernel gives a thread the same part of the rows (parallel.h),
// so that what one leaves behind, the next finds in the caches of the core that needs it; cores may
// share nothing nearer than memory. oneDNN's own division knows nothing of that.

/// Rows below which a product is left to oneDNN, which divides columns too.
constexpr int64_t kRowsOfThread = 32;

/// Whether each thread multiplies its own rows: not where every thread's reading of the whole
/// second matrix would cost more than the rows that it finds at home save.
bool splits_rows(const Product& p) {
  const int64_t threads = omp_get_max_threads();
  return p.stack == 1 && p.ta == Transpose::no && omp_in_parallel() == 0 &&
         p.m >= kRowsOfThread * threads && (threads - 1) * p.n * p.k <= p.m * (p.n + p.k) / 2;
}

void multiply_rows(const Product& p, const Tensor& a, const Tensor& b, const void* bias,
                   Tensor& out) {
  const auto* pa = static_cast<const std::byte*>(a.raw());
  auto* po = static_cast<std::byte*>(out.raw());
  const int64_t a_row = p.k * static_cast<int64_t>(size_of(p.operands));
  const int64_t out_row = p.n * static_cast<int64_t>(size_of(p.result));
  parallel_ranges(p.m, kRowsOfThread / 2, [&](int64_t begin, int64_t end) {
    Product part = p;
    part.m = end - begin;
    onednn().run(part, pa + begin * a_row, b.raw(), bias, po + begin * out_row);
  });
}

/// The gradient of a matrix sums over rows that the threads divide. Each sums its own, where the
/// sums are smaller than the rows they are made of.
bool splits_sum(const Product& p) {
  const int64_t threads = omp_get_max_threads();
  const int64_t sums = p.m * p.n * static_cast<int64_t>(sizeof(float)) * 2;
  const int64_t rows = p.k * (p.m + p.n) * static_cast<int64_t>(size_of(p.operands));
  return p.stack == 1 && p.ta == Transpose::yes && p.tb == Transpose::no &&
         p.result == DType::f32 && omp_in_parallel() == 0 && threads > 1 &&
         p.k >= kRowsOfThread * threads && sums * (threads - 1) <= rows;
}

/// Returns what the threads but the first have summed, to be added to out: (threads - 1, M, N).
Tensor multiply_sum(const Product& p, const Tensor& a, const Tensor& b, Tensor& out) {
  const auto* pa = static_cast<const std::byte*>(a.raw());
  const auto* pb = static_cast<const std::byte*>(b.raw());
  const auto element = static_cast<int64_t>(size_of(p.operands));
  Tensor others = Tensor::empty({omp_get_max_threads() - 1, p.m, p.n}, DType::f32);
  parallel_ranges(p.k, kRowsOfThread / 2, [&](int64_t begin, int64_t end) {
    const int thread = omp_get_thread_num();
    Product part = p;
    part.k = end - begin;
    part.add = p.add && thread == 0;
    float* sum = thread == 0 ? out.data<float>() : others.data<float>() + (thread - 1) * p.m * p.n;
    onednn().run(part, pa + begin * p.m * element, pb + begin * p.n * element, nullptr, sum);
  });
  return others;
}

std::vector<double> transposed(const double* x, int64_t rows, int64_t cols) {
  std::vector<double> t(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      t[static_cast<size_t>(c * rows + r)] = x[r * cols + c];
    }
  }
  return t;
}

void matmul_f64(const Product& p, const double* a, const double* b, const double* bias,
                double* out) {
  const auto a_rows = p.ta == Transpose::yes ? transposed(a, p.k, p.m) : std::vector<double>();
  const auto b_rows = p.tb == Transpose::yes ? transposed(b, p.n, p.k) : std::vector<double>();
  a = a_rows.empty() ? a : a_rows.data();
  b = b_rows.empty() ? b : b_rows.data();
  parallel_rows(p.m, p.n * p.k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double* row = out + i * p.n;
      if (!p.add) {
        std::fill_n(row, p.n, 0.0);
      }
      for (int64_t j = 0; p.bias && j < p.n; ++j) {
        row[j] += bias[j];
      }
      for (int64_t k = 0; k < p.k; ++k) {
        const double factor = a[i * p.k + k];
        for (int64_t j = 0; j < p.n; ++j) {
          row[j] += factor * b[k * p.n + j];
        }
      }
    }
  });
}

}  // namespace

void CpuBackend::matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
                        const Into& out) {
  multiply(a, ta, b, tb, Tensor(), out);
}

void CpuBackend::multiply(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
                          const Tensor& bias, const Into& out) {
  Tensor result = out.tensor;
  const int64_t stack = result.rank() == 3 ? result.dim(0) : 1;
  const int64_t m = result.dim(-2), n = result.dim(-1), k = a.dim(ta == Transpose::no ? -1 : -2);
  const Product product{stack, m, n, k, ta, tb, a.dtype(), result.dtype(), out.add, bias.defined()};
  const void* added = product.bias ? bias.raw() : nullptr;
  if (result.numel() == 0 || k == 0) {
    if (!out.add) {
      result.zero();  // a sum of nothing
    }
    return;
  }
  if (a.dtype() == DType::f64) {
    for (int64_t i = 0; i < stack; ++i) {
      matmul_f64(product, a.data<double>() + i * m * k, b.data<double>() + i * k * n,
                 static_cast<const double*>(added), result.data<double>() + i * m * n);
    }
  } else if (splits_rows(product)) {
    multiply_rows(product, a, b, added, result);
  } else if (splits_sum(product)) {
    const Tensor others = multiply_sum(product, a, b, result);
    for (int64_t i = 0; i < others.dim(0); ++i) {
      scale(others.rows(i, i + 1), 1.0, {result.reshape({1, m, n}), true});
    }
  } else {
    multiply_whole(product, a.raw(), b.raw(), added, result.raw());
  }
}

void CpuBackend::linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) {
  const bool blocked = x.dtype() == DType::f64 || x.dim(0) > kFewRows;
  const bool same = std::all_of(
      w.begin(), w.end(), [&](const Weights& each) { return each.values.dtype() == x.dtype(); });
  if (!blocked || !same) {
    few_rows(x, w, y);
    return;
  }
  for (size_t i = 0; i < w.size(); ++i) {
    multiply(x, Transpose::no, w[i].values, Transpose::yes, w[i].bias, {y[i]});
  }
}

}  // namespace headroom::kernels::cpu
