// The gradient's norm, and AdamW over all parameters. A model has a hundred tensors, most of them
// small: one launch takes many, their addresses being arguments of the kernel.
#include "kernels/cuda/optimizer.h"

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
  C beta1, beta2, rest1, rest2, rate, root, eps, grad_scale;
};

__device__ inline float square_root(float x) { return sqrtf(x); }
__device__ inline double square_root(double x) { return sqrt(x); }

/// Loshchilov and Hutter, arXiv 1711.05101, algorithm 2.
template <class C>
__global__ void update(Batch<Updated<C>> batch, Constants<C> step) {
  const Updated<C>& t = batch.tensors[blockIdx.y];
  for (int64_t i = first_item(); i < t.n; i += item_step()) {
    const C g = t.grad[i] * step.grad_scale;
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
      static_cast<C>(step.grad_scale),
  };
  in_batches(updated, [&](const Batch<Updated<C>>& batch, unsigned count, int64_t most) {
    launch(update<C>, dim3(blocks_for(most).x, count), kThreads, 0, batch, constants);
  });
}

int64_t pieces_of(const Tensor& x) { return (x.numel() + kPiece - 1) / kPiece; }

}  // namespace

double sum_of_squares(std::span<const Tensor> tensors) {
  int64_t pieces = 0;
  for (const Tensor& t : tensors) {
    pieces += pieces_of(t);
  }
  if (pieces == 0) {
    return 0;
  }
  Tensor sums = Tensor::empty({pieces}, DType::f64, tensors.front().device());
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    for_activation(type, [&]<class S, class C>() {
      std::vector<Squared<S>> squared;
      double* place = sums.data<double>();
      for (const Tensor& t : tensors) {
        if (t.dtype() == type) {
          squared.push_back({t.data<S>(), t.numel(), place});
        }
        place += pieces_of(t);
      }
      in_batches(squared, [&](const Batch<Squared<S>>& batch, unsigned count, int64_t most) {
        constexpr int64_t kMostBlocks = 1024;
        const int64_t blocks = std::min(kMostBlocks, (most + kPiece - 1) / kPiece);
        launch(sum_squares_of_pieces<S, C>, dim3(static_cast<unsigned>(blocks), count), kThreads,
               kThreads / kWarp * sizeof(C), batch);
      });
    });
  }
  Tensor total = Tensor::empty({1}, DType::f64, sums.device());
  launch(sum_pieces, dim3(1), kThreads, kThreads / kWarp * sizeof(double), sums.data<double>(),
         total.data<double>(), pieces);
  return *total.to(kCpu).data<double>();
}

void adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) {
  adamw_of_type<double>(tensors, step, DType::f64);
  adamw_of_type<float>(tensors, step, DType::f32);
}

}  // namespace headroom::kernels::cuda
