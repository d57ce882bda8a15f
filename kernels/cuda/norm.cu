// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich, arXiv 1910.07467),
// with the residual addition before them in the same pass: a block to a row, which after the first
// reading lies in the first cache.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_backend.h"

namespace headroom::kernels::cuda {

namespace {

/// A thread sums, subtracts and writes the same elements throughout: only the joins need barriers.
template <class S, class C>
__global__ void norm_rows(bool centered, const S* x, const S* residual, const C* w, const C* b,
                          C eps, S* sum, S* y, C* stats, int64_t rows, int64_t width) {
  const auto scratch = shared_memory<C>(0, kThreads / kWarp);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const S* in = x + row * width;
    if (residual != nullptr) {
      for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        sum[row * width + i] = narrow<S>(widen<C>(in[i]) + widen<C>(residual[row * width + i]));
      }
      in = sum + row * width;
    }
    C mean = 0;
    if (centered) {
      for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        mean += widen<C>(in[i]);
      }
      mean = join_block(mean, scratch, Sum()) / static_cast<C>(width);
    }
    C squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      const C v = widen<C>(in[i]) - mean;
      squares += v * v;
    }
    squares = join_block(squares, scratch, Sum());
    const C inverse = C(1) / square_root(squares / static_cast<C>(width) + eps);
    if (threadIdx.x == 0) {
      stats[2 * row] = mean;
      stats[2 * row + 1] = inverse;
    }
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      C v = (widen<C>(in[i]) - mean) * inverse;
      v = w == nullptr ? v : v * w[i];
      y[row * width + i] = narrow<S>(b == nullptr ? v : v + b[i]);
    }
  }
}

/// What the gradient reads.
template <class S, class C>
struct Saved {
  const S *x, *dy;
  const C *w, *stats;  // w or null
  int64_t width;
  __device__ C normed(int64_t row, int64_t i) const {
    return (widen<C>(x[row * width + i]) - stats[2 * row]) * stats[2 * row + 1];
  }
  __device__ C gradient(int64_t row, int64_t i) const {
    const C g = widen<C>(dy[row * width + i]);
    return w == nullptr ? g : g * w[i];
  }
};

template <class S, class C>
struct WeightTerm {
  Saved<S, C> saved;
  __device__ C operator()(int64_t row, int64_t i) const {
    return widen<C>(saved.dy[row * saved.width + i]) * saved.normed(row, i);
  }
};

/// With n = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - n mean(g n)); rms norm has no
/// mean(g). dx may be dy: a thread writes only what it has read.
template <class S, class C>
__global__ void norm_rows_backward(bool centered, Saved<S, C> saved, const S* dsum, S* dx, bool add,
                                   int64_t rows) {
  const auto scratch = shared_memory<C>(0, kThreads / kWarp);
  const int64_t width = saved.width;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    C sum_g = 0, sum_gn = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      const C g = saved.gradient(row, i);
      sum_g += g;
      sum_gn += g * saved.normed(row, i);
    }
    const C mean_gn = join_block(sum_gn, scratch, Sum()) / static_cast<C>(width);
    C mean_g = 0;
    if (centered) {
      mean_g = join_block(sum_g, scratch, Sum()) / static_cast<C>(width);
    }
    const C inverse = saved.stats[2 * row + 1];
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      C v = inverse * (saved.gradient(row, i) - mean_g - saved.normed(row, i) * mean_gn);
      v = dsum == nullptr ? v : v + widen<C>(dsum[row * width + i]);
      put(v, dx + row * width + i, add);
    }
  }
}

template <class S, class C>
struct Row {
  const S* x;
  int64_t width;
  __device__ C operator()(int64_t row, int64_t i) const { return widen<C>(x[row * width + i]); }
};

template <class T>
const T* optional_data(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

}  // namespace

void CudaBackend::norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
                       const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const int64_t width = x.dim(-1), rows = x.numel() / width;
    launch(norm_rows<S, C>, block_per_row(rows), kThreads, kThreads / kWarp * sizeof(C),
           kind == NormKind::layer_norm, x.data<S>(), optional_data<S>(residual),
           optional_data<C>(w), optional_data<C>(b), static_cast<C>(eps),
           residual.defined() ? sum.data<S>() : nullptr, y.data<S>(), stats.data<C>(), rows, width);
  });
}

void CudaBackend::norm_backward(NormKind kind, const Tensor& sum, const Tensor& w,
                                const Tensor& stats, const Tensor& dy, const Tensor& dsum,
                                const Into& dx, const Into& dw, const Into& db) {
  for_type(sum.dtype(), [&]<class S, class C>() {
    const int64_t width = sum.dim(-1), rows = sum.numel() / width;
    const Saved<S, C> saved = {sum.data<S>(), dy.data<S>(), optional_data<C>(w), stats.data<C>(),
                               width};
    // First the weights', for dx may overwrite dy.
    if (dw.wanted()) {
      sum_columns<C>(WeightTerm<S, C>{saved}, rows, width, dw);
    }
    if (db.wanted()) {
      sum_columns<C>(Row<S, C>{dy.data<S>(), width}, rows, width, db);
    }
    if (dx.wanted()) {
      launch(norm_rows_backward<S, C>, block_per_row(rows), kThreads, kThreads / kWarp * sizeof(C),
             kind == NormKind::layer_norm, saved, optional_data<S>(dsum), dx.data<S>(), dx.add,
             rows);
    }
  });
}

void CudaBackend::sum_rows(const Tensor& x, const Into& out) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const int64_t width = x.dim(-1);
    sum_columns<C>(Row<S, C>{x.data<S>(), width}, x.numel() / width, width, out);
  });
}

}  // namespace headroom::kernels::cuda
