// Norms as differentiable operators, with and without the residual addition before them.
#include "autograd/ops.h"

namespace headroom::autograd {

using kernels::backend;

namespace {

const Tensor kAbsent;

const Tensor& optional(const Variable& v) { return v.defined() ? v.value() : kAbsent; }

void check_norm(const Variable& x, const Variable& w, const Variable& b) {
  const Shape shape{x.dim(-1)};
  const DType type = compute_type(x.dtype());
  for (const Variable* v : {&w, &b}) {
    if (v->defined()) {
      check(v->shape() == shape && v->dtype() == type,
            "[norm] weights of {} activations of width {} must be {} {}: got {} {}",
            name_of(x.dtype()), x.dim(-1), name_of(type), shape, name_of(v->dtype()), v->shape());
    }
  }
}

Tensor stats_for(const Variable& x) {
  return Tensor::empty({x.value().numel() / x.dim(-1), 2}, compute_type(x.dtype()), x.device());
}

}  // namespace

Variable norm(NormKind kind, const Variable& x, const Variable& w, const Variable& b, double eps) {
  check_norm(x, w, b);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device()), stats = stats_for(x), unused;
  backend(x.device()).norm(kind, x.value(), {}, optional(w), optional(b), eps, unused, y, stats);
  return record("norm", y, {x, w, b},
                [kind, saved = x.value(), weights = optional(w), stats](Gradients& g) {
                  backend(saved.device())
                      .norm_backward(kind, saved, weights, stats, g.of(), {}, g.into(0), g.into(1),
                                     g.into(2));
                });
}

std::pair<Variable, Variable> add_norm(NormKind kind, const Variable& x, const Variable& delta,
                                       const Variable& w, const Variable& b, double eps) {
  check(x.shape() == delta.shape() && x.dtype() == delta.dtype(),
        "[add_norm] shapes and types must agree: got {} {} and {} {}", name_of(x.dtype()),
        x.shape(), name_of(delta.dtype()), delta.shape());
  check_norm(x, w, b);
  Tensor sum = Tensor::empty(x.shape(), x.dtype(), x.device()),
         y = Tensor::empty(x.shape(), x.dtype(), x.device());
  Tensor stats = stats_for(x);
  backend(x.device())
      .norm(kind, x.value(), delta.value(), optional(w), optional(b), eps, sum, y, stats);
  return record("add_norm", sum, y, {x, delta, w, b},
                [kind, sum, weights = optional(w), stats](Gradients& g) {
                  if (!g.of(1).defined()) {  // only the sum was used
                    g.add(0, g.of(0));
                    g.add(1, g.of(0));
                    return;
                  }
                  // x and delta have the same gradient: one buffer serves both, and
                  // is copied only if one of them is added to.
                  Tensor dsum = Tensor::empty(sum.shape(), sum.dtype(), sum.device());
                  backend(sum.device())
                      .norm_backward(kind, sum, weights, stats, g.of(1), g.of(0), {dsum}, g.into(2),
                                     g.into(3));
                  g.add(0, dsum);
                  g.add(1, dsum);
                });
}

}  // namespace headroom::autograd
