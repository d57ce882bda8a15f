// The gradient's norm, AdamW over all parameters, and what Muon does beside its products. A model
// has a hundred tensors, most of them small: one launch takes many, their addresses being arguments
// of the kernel. The scale of the gradients is read where it was made; NaN means that no step is to
// be taken.
#include "kernels/cuda/cuda_backend.h"

#include <cmath>
#include <vector>

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

/// Tensors of one launch; blockIdx.y says which. Arguments may take 4 KiB (CUDA C++ Programming
/// Guide, "Function Parameters").
constexpr int kTensors = 64;
template <class T>
struct Batch {
  T tensors[kTensors];
};

/// Calls run(batch, tensors in it, numel of the largest) until all were in one.
template <class T, class F>
void in_batches(const std::vector<T>& tensors, const F& run) {
  for (size_t first = 0; first < tensors.size(); first += kTensors) {
    const size_t count = std::min<size_t>(kTensors, tensors.size() - first);
    Batch<T> batch{};
    int64_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      batch.tensors[i] = tensors[first + i];
      most = std::max(most, batch.tensors[i].n);
    }
    run(batch, static_cast<unsigned>(count), most);
  }
}

/// Partial sums are of fixed pieces and added in order.
constexpr int64_t kPiece = 8192;

template <class S>
struct Squared {
  const S* x;
  int64_t n;
  double* sums;  // one per piece
};

template <class S, class C>
__global__ void sum_squares_of_pieces(Batch<Squared<S>> batch) {
  const auto scratch = shared_memory<C>(0, kThreads / kWarp);
  const Squared<S>& tensor = batch.tensors[blockIdx.y];
  for (int64_t piece = blockIdx.x; piece * kPiece < tensor.n; piece += gridDim.x) {
    const int64_t rest = tensor.n - piece * kPiece, n = rest < kPiece ? rest : kPiece;
    C sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      const C v = widen<C>(tensor.x[piece * kPiece + i]);
      sum += v * v;
    }
    sum = join_block(sum, scratch, Sum());
    if (threadIdx.x == 0) {
      tensor.sums[piece] = static_cast<double>(sum);
    }
  }
}

/// One block.
__global__ void sum_pieces(const double* sums, double* total, int64_t n) {
  const auto scratch = shared_memory<double>(0, kThreads / kWarp);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    sum += sums[i];
  }
  sum = join_block(sum, scratch, Sum());
  if (threadIdx.x == 0) {
    *total = sum;
  }
}

__global__ void make_clip_scale(const double* squares, double count, double max_norm,
                                double* scale) {
  const double norm = square_root(*squares) / count;
  const double most = max_norm > 0 ? max_norm / (norm + 1e-6) : 1.0;
  const double clip = most < 1.0 ? most : 1.0;
  *scale = isfinite(norm) ? clip / count : static_cast<double>(NAN);
}

template <class C>
struct Updated {
  C* param;
  const C* grad;
  C *m, *v;
  int64_t n;
  C keep;  // 1 - lr * weight_decay
};
template <class C>
struct Constants {
  C beta1, beta2, rest1, rest2, rate, root, eps;
};

/// Loshchilov and Hutter, arXiv 1711.05101, algorithm 2.
template <class C>
__global__ void update(Batch<Updated<C>> batch, Constants<C> step, const double* grad_scale) {
  const Updated<C>& t = batch.tensors[blockIdx.y];
  const auto scale = static_cast<C>(*grad_scale);
  if (isnan(scale)) {
    return;
  }
  for (int64_t i = first_item(); i < t.n; i += item_step()) {
    const C g = t.grad[i] * scale;
    const C m = step.beta1 * t.m[i] + step.rest1 * g;
    const C v = step.beta2 * t.v[i] + step.rest2 * (g * g);
    t.m[i] = m;
    t.v[i] = v;
    t.param[i] = t.param[i] * t.keep - step.rate * m / (square_root(v) * step.root + step.eps);
  }
}

template <class C>
void adamw_of_type(std::span<const AdamWTensors> tensors, const AdamWStep& step, DType type) {
  std::vector<Updated<C>> updated;
  for (AdamWTensors t : tensors) {
    if (t.param.dtype() == type) {
      updated.push_back({t.param.data<C>(), t.grad.data<C>(), t.m.data<C>(), t.v.data<C>(),
                         t.param.numel(), static_cast<C>(1 - step.lr * t.weight_decay)});
    }
  }
  const auto n = static_cast<double>(step.step);
  const Constants<C> constants = {
      static_cast<C>(step.beta1),
      static_cast<C>(step.beta2),
      static_cast<C>(1 - step.beta1),
      static_cast<C>(1 - step.beta2),
      static_cast<C>(step.lr / (1 - std::pow(step.beta1, n))),
      static_cast<C>(1 / std::sqrt(1 - std::pow(step.beta2, n))),
      static_cast<C>(step.eps),
  };
  in_batches(updated, [&](const Batch<Updated<C>>& batch, unsigned count, int64_t most) {
    launch(update<C>, dim3(blocks_for(most).x, count), kThreads, 0, batch, constants,
           step.grad_scale.data<double>());
  });
}

template <class C>
struct MuonMatrix {
  C* param;
  const C* grad;
  C *momentum, *direction;
  int64_t n;
};

template <class C>
__global__ void find_directions(Batch<MuonMatrix<C>> batch, C mu, const double* grad_scale) {
  const MuonMatrix<C>& t = batch.tensors[blockIdx.y];
  const auto scale = static_cast<C>(*grad_scale);
  if (isnan(scale)) {
    return;
  }
  for (int64_t i = first_item(); i < t.n; i += item_step()) {
    const C g = scale * t.grad[i], momentum = mu * t.momentum[i] + g;
    t.momentum[i] = momentum;
    t.direction[i] = g + mu * momentum;
  }
}

template <class C>
__global__ void follow_directions(Batch<MuonMatrix<C>> batch, C keep, C rate,
                                  const double* grad_scale) {
  const MuonMatrix<C>& t = batch.tensors[blockIdx.y];
  if (isnan(*grad_scale)) {
    return;
  }
  for (int64_t i = first_item(); i < t.n; i += item_step()) {
    t.param[i] = keep * t.param[i] - rate * t.direction[i];
  }
}

template <class S>
struct Scaled {
  const S* x;
  S* y;
  int64_t n;
  const double* sums;  // of the squares of its pieces
};

/// y = x / (norm of x + eps). Each block adds the few sums anew.
template <class S, class C>
__global__ void divide_by_norms(Batch<Scaled<S>> batch, double eps) {
  const auto scratch = shared_memory<double>(0, kThreads / kWarp);
  const Scaled<S>& matrix = batch.tensors[blockIdx.y];
  double sum = 0;
  for (int64_t piece = threadIdx.x; piece * kPiece < matrix.n; piece += kThreads) {
    sum += matrix.sums[piece];
  }
  const double norm = square_root(join_block(sum, scratch, Sum()));
  const auto factor = static_cast<C>(1 / (norm + eps));
  for (int64_t i = first_item(); i < matrix.n; i += item_step()) {
    matrix.y[i] = narrow<S>(factor * widen<C>(matrix.x[i]));
  }
}

template <class C>
std::vector<MuonMatrix<C>> muon_matrices(std::span<const MuonTensors> matrices,
                                         const Tensor& directions) {
  std::vector<MuonMatrix<C>> result;
  C* direction = Tensor(directions).data<C>();
  for (MuonTensors t : matrices) {
    result.push_back(
        {t.param.data<C>(), t.grad.data<C>(), t.momentum.data<C>(), direction, t.param.numel()});
    direction += t.param.numel();
  }
  return result;
}

int64_t pieces_of(int64_t numel) { return (numel + kPiece - 1) / kPiece; }

template <class S, class C>
void square_and_sum(const std::vector<Squared<S>>& tensors) {
  in_batches(tensors, [](const Batch<Squared<S>>& batch, unsigned count, int64_t most) {
    constexpr int64_t kMostBlocks = 1024;
    const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, pieces_of(most)));
    launch(sum_squares_of_pieces<S, C>, dim3(blocks, count), kThreads, kThreads / kWarp * sizeof(C),
           batch);
  });
}

}  // namespace

void CudaBackend::sum_of_squares(std::span<const Tensor> tensors, Tensor& sum) {
  int64_t pieces = 0;
  for (const Tensor& t : tensors) {
    pieces += pieces_of(t.numel());
  }
  Tensor sums = Tensor::empty({pieces}, DType::f64, sum.device());
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    for_type(type, [&]<class S, class C>() {
      std::vector<Squared<S>> squared;
      double* place = sums.data<double>();
      for (const Tensor& t : tensors) {
        if (t.dtype() == type) {
          squared.push_back({t.data<S>(), t.numel(), place});
        }
        place += pieces_of(t.numel());
      }
      square_and_sum<S, C>(squared);
    });
  }
  launch(sum_pieces, dim3(1), kThreads, kThreads / kWarp * sizeof(double), sums.data<double>(),
         sum.data<double>(), pieces);
}

void CudaBackend::clip_scale(const Tensor& sum_of_squares, double count, double max_norm,
                             Tensor& scale) {
  launch(make_clip_scale, dim3(1), dim3(1), 0, sum_of_squares.data<double>(), count, max_norm,
         scale.data<double>());
}

void CudaBackend::adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) {
  adamw_of_type<double>(tensors, step, DType::f64);
  adamw_of_type<float>(tensors, step, DType::f32);
}

void CudaBackend::muon_directions(std::span<const MuonTensors> matrices, double mu,
                                  const Tensor& grad_scale, Tensor& directions) {
  for_type(directions.dtype(), [&]<class, class C>() {
    in_batches(muon_matrices<C>(matrices, directions),
               [&](const auto& batch, unsigned count, int64_t most) {
                 launch(find_directions<C>, dim3(blocks_for(most).x, count), kThreads, 0, batch,
                        static_cast<C>(mu), grad_scale.data<double>());
               });
  });
}

void CudaBackend::unit_matrices(const Tensor& x, double eps, Tensor& y) {
  const int64_t count = x.dim(0), n = x.numel() / std::max<int64_t>(1, count);
  const int64_t pieces = pieces_of(n);
  Tensor sums = Tensor::empty({count * pieces}, DType::f64, x.device());
  for_type(x.dtype(), [&]<class S, class C>() {
    std::vector<Squared<S>> squared;
    std::vector<Scaled<S>> scaled;
    for (int64_t i = 0; i < count; ++i) {
      double* const place = sums.data<double>() + i * pieces;
      squared.push_back({x.data<S>() + i * n, n, place});
      scaled.push_back({x.data<S>() + i * n, y.data<S>() + i * n, n, place});
    }
    square_and_sum<S, C>(squared);
    in_batches(scaled, [&](const Batch<Scaled<S>>& batch, unsigned matrices, int64_t) {
      launch(divide_by_norms<S, C>, dim3(blocks_for(n).x, matrices), kThreads,
             kThreads / kWarp * sizeof(double), batch, eps);
    });
  });
}

void CudaBackend::muon_update(std::span<const MuonTensors> matrices, const Tensor& directions,
                              double keep, double rate, const Tensor& grad_scale) {
  for_type(directions.dtype(), [&]<class, class C>() {
    in_batches(muon_matrices<C>(matrices, directions),
               [&](const auto& batch, unsigned count, int64_t most) {
                 launch(follow_directions<C>, dim3(blocks_for(most).x, count), kThreads, 0, batch,
                        static_cast<C>(keep), static_cast<C>(rate), grad_scale.data<double>());
               });
  });
}

}  // namespace headroom::kernels::cuda
