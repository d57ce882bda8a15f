// The embedding as a differentiable operator: ids are checked here, once, for the kernels.
#include "autograd/ops.h"

namespace headroom::autograd {

using kernels::backend;

Variable embedding(const Tensor& ids, const Variable& w, DType dtype) {
  check(w.shape().rank() == 2 && w.dtype() == compute_type(dtype),
        "[embedding] a {} table (V, C) is needed: got {} {}", name_of(compute_type(dtype)),
        name_of(w.dtype()), w.shape());
  if (ids.device() == kCpu) {
    const auto* first = ids.data<int32_t>();
    for (const int32_t id : std::span(first, first + ids.numel())) {
      check(id >= 0 && id < w.dim(0), "[embedding] token ids must be in 0..{}: got {}",
            w.dim(0) - 1, id);
    }
  }
  const Tensor there = ids.to(w.device());
  const int64_t width = w.dim(1);
  Tensor y = Tensor::empty({ids.numel(), width}, dtype, w.device());
  backend(w.device()).embedding(there, w.value(), y);
  std::vector<int64_t> shape(ids.shape().dims().begin(), ids.shape().dims().end());
  shape.push_back(width);
  return record("embedding", y.reshape(Shape(std::span<const int64_t>(shape))), {w},
                [there, width](Gradients& g) {
                  backend(there.device())
                      .embedding_backward(there, g.of().reshape({there.numel(), width}), g.into(0));
                });
}

}  // namespace headroom::autograd
