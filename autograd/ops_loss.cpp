// The head and its cross-entropy as one operator. The gradients are made in the forward pass, chunk
// by chunk, while the logits are at hand.
#include <algorithm>
#include <vector>

#include "autograd/ops.h"

namespace headroom::autograd {

using kernels::backend;
using kernels::Transpose;

namespace {

/// The loss of one chunk of rows after another, and the gradients it leaves behind.
class ChunkedHead {
 public:
  ChunkedHead(const Variable& x, const Variable& w, double cap, bool with_gradient)
      : x_(x.value()),
        w_(w.as(x.dtype())),
        cap_(cap),
        compute_(compute_type(x.dtype())),
        kernels_(backend(x.device())) {
    if (with_gradient) {
      dx = Tensor::empty(x_.shape(), x_.dtype(), x_.device());
      dw = Tensor::empty(w_.shape(), compute_, w_.device());
    }
  }

  /// Gradients are scaled by `scale`.
  void run(int64_t begin, int64_t end, const Tensor& targets, double scale, Tensor losses) {
    const Tensor rows = x_.rows(begin, end);
    Tensor logits = Tensor::empty({end - begin, w_.dim(0)}, compute_, x_.device());
    kernels_.matmul(rows, Transpose::no, w_, Transpose::yes, {logits});
    if (cap_ > 0) {
      kernels_.softcap(logits, cap_, logits);
    }
    Tensor dlogits = gradient_buffer(logits);
    kernels_.cross_entropy(logits, targets.rows(begin, end), scale, losses, dlogits);
    if (dlogits.defined()) {
      backward(rows, logits, dlogits, begin, end);
    }
  }

  Tensor dx, dw;

 private:
  Tensor gradient_buffer(const Tensor& logits) const {
    if (!dx.defined()) {
      return {};
    }
    if (cap_ > 0) {  // the cap's derivative needs the logits, and float32 sums
      return Tensor::empty(logits.shape(), compute_, logits.device());
    }
    return x_.dtype() == compute_ ? logits
                                  : Tensor::empty(logits.shape(), x_.dtype(), logits.device());
  }

  void backward(const Tensor& rows, const Tensor& logits, Tensor dlogits, int64_t begin,
                int64_t end) {
    if (cap_ > 0) {
      kernels_.softcap_backward(logits, cap_, dlogits, {dlogits});
    }
    if (dlogits.dtype() != x_.dtype()) {
      Tensor narrow = Tensor::empty(dlogits.shape(), x_.dtype(), dlogits.device());
      kernels_.cast(dlogits, narrow);
      dlogits = narrow;
    }
    kernels_.matmul(dlogits, Transpose::no, w_, Transpose::no, {dx.rows(begin, end)});
    kernels_.matmul(dlogits, Transpose::yes, rows, Transpose::no, {dw, begin > 0});
  }

  const Tensor x_, w_;
  const double cap_;
  const DType compute_;
  kernels::Backend& kernels_;
};

}  // namespace

Variable linear_cross_entropy(const Variable& x, const Variable& w, const Tensor& targets,
                              double cap, int64_t rows_at_once) {
  check(x.shape().rank() == 2 && w.shape().rank() == 2 && x.dim(1) == w.dim(1) &&
            targets.numel() == x.dim(0) && targets.device() == kCpu,
        "[cross_entropy] x (N, C), w (V, C) and N targets on the cpu are needed: got {}, {} and {} "
        "on {}",
        x.shape(), w.shape(), targets.numel(), targets.device());
  check(rows_at_once > 0, "[cross_entropy] rows_at_once must be positive: got {}", rows_at_once);
  const auto* first = targets.data<int32_t>();
  const std::span<const int32_t> all(first, first + targets.numel());
  for (const int32_t t : all) {
    check(t >= -1 && t < w.dim(0), "[cross_entropy] targets must be in -1..{}: got {}",
          w.dim(0) - 1, t);
  }
  const auto counted = std::ranges::count_if(all, [](int32_t t) { return t >= 0; });
  check(counted > 0, "[cross_entropy] no row has a target");
  const double scale = 1.0 / static_cast<double>(counted);
  ChunkedHead head(x, w, cap, recording() && (x.requires_grad() || w.requires_grad()));
  const Tensor there = targets.to(x.device());
  const Tensor losses = Tensor::empty({x.dim(0)}, compute_type(x.dtype()), x.device());
  for (int64_t begin = 0; begin < x.dim(0); begin += rows_at_once) {
    const int64_t end = std::min(begin + rows_at_once, x.dim(0));
    head.run(begin, end, there, scale, losses.rows(begin, end));
  }
  Tensor loss = Tensor::empty({}, losses.dtype(), x.device());
  backend(x.device()).sum(losses, scale, loss);
  // Gradients were made with the logits at hand; what is left is the upstream factor, 1 in ordinary
  // training.
  return record("cross_entropy", loss, {x, w}, [dx = head.dx, dw = head.dw](Gradients& g) {
    const double upstream = g.of_one() ? 1.0 : g.of().item();
    for (auto [input, gradient] : {std::pair(0, dx), std::pair(1, dw)}) {
      if (upstream != 1.0) {
        backend(gradient.device()).scale(gradient, upstream, {gradient});
      }
      g.add(static_cast<size_t>(input), gradient);
    }
  });
}

}  // namespace headroom::autograd
