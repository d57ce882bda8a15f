// Taking rows apart by columns and putting them together, as differentiable operators.
#include "autograd/ops.h"

namespace headroom::autograd {

using kernels::backend;
using kernels::Into;

namespace {

/// x (..., C) as (N, C).
Tensor as_rows(const Tensor& x) {
  const int64_t width = x.dim(-1);
  return x.reshape({x.numel() / width, width});
}

/// A new tensor shaped like x but for its last axis: `width` columns of x from `column` on.
Tensor columns(const Tensor& x, int64_t column, int64_t width) {
  Tensor y = Tensor::empty(x.shape().with_last(width), x.dtype(), x.device());
  backend(x.device()).copy_columns(as_rows(x), column, {as_rows(y)}, 0, width);
  return y;
}

}  // namespace

std::pair<Variable, Variable> split(const Variable& x, int64_t width) {
  const int64_t other = x.dim(-1) - width;
  check(width > 0 && other > 0, "[split] {} columns of {}: each part needs one", width, x.dim(-1));
  return record("split", columns(x.value(), 0, width), columns(x.value(), width, other), {x},
                [width, other](Gradients& g) {
                  Into dx = g.into(0);
                  dx.tensor = as_rows(dx.tensor);
                  if (!dx.add && !(g.of(0).defined() && g.of(1).defined())) {
                    dx.tensor.zero();  // what nothing used has no gradient
                  }
                  for (const bool second : {false, true}) {
                    const Tensor& dy = g.of(second ? 1 : 0);
                    if (dy.defined()) {
                      backend(dy.device())
                          .copy_columns(as_rows(dy), 0, dx, second ? width : 0,
                                        second ? other : width);
                    }
                  }
                });
}

Variable concat(const Variable& a, const Variable& b) {
  const int64_t first = a.dim(-1), second = b.dim(-1);
  check(a.shape().with_last(second) == b.shape() && a.dtype() == b.dtype(),
        "[concat] shapes but for the last axis, and types, must agree: got {} {} and {} {}",
        name_of(a.dtype()), a.shape(), name_of(b.dtype()), b.shape());
  Tensor y = Tensor::empty(a.shape().with_last(first + second), a.dtype(), a.device());
  auto& device = backend(a.device());
  device.copy_columns(as_rows(a.value()), 0, {as_rows(y)}, 0, first);
  device.copy_columns(as_rows(b.value()), 0, {as_rows(y)}, first, second);
  return record("concat", y, {a, b}, [first, second](Gradients& g) {
    const Tensor dy = as_rows(g.of());
    for (const size_t input : {size_t{0}, size_t{1}}) {
      if (Into dx = g.into(input); dx.wanted()) {
        dx.tensor = as_rows(dx.tensor);
        backend(dy.device())
            .copy_columns(dy, input == 0 ? 0 : first, dx, 0, input == 0 ? first : second);
      }
    }
  });
}

}  // namespace headroom::autograd
