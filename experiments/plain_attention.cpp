// One kernel per line of the formula.
#include "experiments/plain_attention.h"

#include <algorithm>

#include "kernels/backend.h"

namespace headroom::experiments {
namespace {

constexpr float kUnseen = -1e30F;

/// Softmax over the last axis of x (N, S), in place. The library's row softmax is the gradient of
/// its loss, softmax - onehot(target): with the target 0 everywhere, adding 1 to column 0 leaves
/// the softmax.
void softmax(Tensor& x) {
  const int64_t N = x.dim(0), S = x.dim(1);
  const Tensor targets = Tensor::zeros({N}, DType::i32);
  Tensor losses = Tensor::empty({N}, DType::f32);
  kernels::backend(kCpu).cross_entropy(x, targets, 1.0, losses, x);
  auto* p = x.data<float>();
  for (int64_t n = 0; n < N; ++n) {
    p[n * S] += 1;
  }
}

}  // namespace

Tensor heads_first(const Tensor& x) {
  const int64_t S = x.dim(0), H = x.dim(1), D = x.dim(2);
  Tensor y = Tensor::empty({H, S, D}, x.dtype());
  const Tensor from = x.reshape({S * H, D});
  const Tensor to = y.reshape({H * S, D});
  for (int64_t s = 0; s < S; ++s) {
    for (int64_t h = 0; h < H; ++h) {
      to.rows(h * S + s, h * S + s + 1).copy_from(from.rows(s * H + h, s * H + h + 1));
    }
  }
  return y;
}

Tensor plain_scores(const Tensor& q, const Tensor& k, double scale) {
  const Tensor scaled = Tensor::empty(q.shape(), q.dtype());
  kernels::backend(kCpu).scale(q, scale, kernels::Into{scaled});
  Tensor scores = Tensor::empty({q.dim(0), q.dim(1), k.dim(1)}, q.dtype());
  kernels::backend(kCpu).matmul(scaled, kernels::Transpose::no, k, kernels::Transpose::yes,
                                kernels::Into{scores});
  return scores;
}

void mask_causally(Tensor& scores) {
  const int64_t H = scores.dim(0), T = scores.dim(1), S = scores.dim(2);
  auto* p = scores.data<float>();
  for (int64_t h = 0; h < H; ++h) {
    for (int64_t t = 0; t < T; ++t) {
      float* row = p + (h * T + t) * S;
      std::fill(row + S - T + t + 1, row + S, kUnseen);
    }
  }
}

Tensor plain_weighted_sum(const Tensor& scores, const Tensor& v) {
  Tensor rows = scores.reshape({scores.dim(0) * scores.dim(1), scores.dim(2)});
  softmax(rows);
  Tensor out = Tensor::empty({v.dim(0), scores.dim(1), v.dim(2)}, v.dtype());
  kernels::backend(kCpu).matmul(scores, kernels::Transpose::no, v, kernels::Transpose::no,
                                kernels::Into{out});
  return out;
}

}  // namespace headroom::experiments
