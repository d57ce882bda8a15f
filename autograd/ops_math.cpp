// The differentiable operators that work on elements and matrices: each is check, allocate, kernel,
// record.
#include "autograd/ops.h"

namespace headroom::autograd {

using kernels::backend;
using kernels::Into;
using kernels::Transpose;

namespace {

Tensor empty_like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }

void check_same(const char* op, const Variable& a, const Variable& b) {
  check(a.shape() == b.shape() && a.dtype() == b.dtype(),
        "[{}] shapes and types must agree: got {} {} and {} {}", op, name_of(a.dtype()), a.shape(),
        name_of(b.dtype()), b.shape());
}

}  // namespace

Variable linear(const Variable& x, const Variable& w, const Variable& b) {
  check(w.shape().rank() == 2 && x.dim(-1) == w.dim(1),
        "[linear] x (..., in) and w (out, in) must agree: got {} and {}", x.shape(), w.shape());
  check(w.dtype() == compute_type(x.dtype()),
        "[linear] weights for {} activations must be {}: got {}", name_of(x.dtype()),
        name_of(compute_type(x.dtype())), name_of(w.dtype()));
  const int64_t in = w.dim(1), out = w.dim(0), rows = x.value().numel() / in;
  const Tensor x2 = x.value().reshape({rows, in});
  const Tensor& weights = w.as(x.dtype());
  const kernels::Weights layer{weights, {}, b.defined() ? b.as(x.dtype()) : Tensor()};
  const Tensor y = Tensor::empty(x.shape().with_last(out), x.dtype(), x.device());
  Tensor y2 = y.reshape({rows, out});
  backend(x.device()).linear(x2, std::span(&layer, 1), std::span(&y2, 1));
  return record("linear", y, {x, w, b}, [x2, weights, rows, in, out](Gradients& g) {
    const Tensor dy = g.of().reshape({rows, out});
    auto& device = backend(dy.device());
    if (Into dx = g.into(0); dx.wanted()) {
      dx.tensor = dx.tensor.reshape({rows, in});
      device.matmul(dy, Transpose::no, weights, Transpose::no, dx);
    }
    if (const Into dw = g.into(1); dw.wanted()) {
      device.matmul(dy, Transpose::yes, x2, Transpose::no, dw);
    }
    if (const Into db = g.into(2); db.wanted()) {
      device.sum_rows(dy, db);
    }
  });
}

std::vector<Variable> linear(const Variable& x, std::span<const kernels::Weights> w) {
  check(!recording(), "[linear] products with stored weights are for inference: use NoGrad");
  const int64_t in = x.dim(-1), rows = x.value().numel() / in;
  std::vector<Variable> results;
  std::vector<Tensor> y;
  for (const kernels::Weights& each : w) {
    check(each.values.rank() == 2 && each.values.dim(1) == in,
          "[linear] x (..., in) and w (out, in) must agree: got {} and {}", x.shape(),
          each.values.shape());
    const int64_t out = each.values.dim(0);
    Tensor result = Tensor::empty(x.shape().with_last(out), x.dtype(), x.device());
    y.push_back(result.reshape({rows, out}));
    results.push_back(Variable::unrecorded(std::move(result)));
  }
  backend(x.device()).linear(x.value().reshape({rows, in}), w, y);
  return results;
}

namespace {

/// (A, B, C) as (B, A, C).
Tensor swapped(const Tensor& x) {
  const Shape shape{x.dim(1), x.dim(0), x.dim(2)};
  if (x.dim(0) == 1 || x.dim(1) == 1) {
    return x.reshape(shape);  // the same numbers in the same order
  }
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  backend(x.device()).swap_axes(x, {y});
  return y;
}

}  // namespace

Variable head_linear(const Variable& x, const Variable& w, Transpose op) {
  const int64_t heads = x.dim(-2), in = x.dim(-1), rows = x.value().numel() / (heads * in);
  const int64_t out = op == Transpose::no ? w.dim(1) : w.dim(0) / heads;
  check(w.shape() == (op == Transpose::no ? Shape{heads * in, out} : Shape{heads * out, in}),
        "[head_linear] x (..., heads, in) and the heads' matrices must agree: got {} and {}",
        x.shape(), w.shape());
  const Shape stack = op == Transpose::no ? Shape{heads, in, out} : Shape{heads, out, in};
  const Tensor x3 = swapped(x.value().reshape({rows, heads, in}));
  const Tensor weights = w.as(x.dtype()).reshape(stack);
  const Tensor y3 = Tensor::empty({heads, rows, out}, x.dtype(), x.device());
  backend(x.device()).matmul(x3, Transpose::no, weights, op, {y3});
  const Tensor y = swapped(y3).reshape(x.shape().with_last(out));
  return record("head_linear", y, {x, w}, [=](Gradients& g) {
    const Tensor dy3 = swapped(g.of().reshape({rows, heads, out}));
    auto& device = backend(dy3.device());
    if (Into dx = g.into(0); dx.wanted()) {
      const Tensor dx3 = empty_like(x3);
      device.matmul(dy3, Transpose::no, weights,
                    op == Transpose::no ? Transpose::yes : Transpose::no, {dx3});
      dx.tensor = dx.tensor.reshape({rows, heads, in});
      device.swap_axes(dx3, dx);
    }
    if (Into dw = g.into(1); dw.wanted()) {
      dw.tensor = dw.tensor.reshape(stack);
      device.matmul(op == Transpose::no ? x3 : dy3, Transpose::yes, op == Transpose::no ? dy3 : x3,
                    Transpose::no, dw);
    }
  });
}

Variable add(const Variable& a, const Variable& b) {
  check_same("add", a, b);
  Tensor y = empty_like(a.value());
  backend(a.device()).add(a.value(), b.value(), y);
  return record("add", y, {a, b}, [](Gradients& g) {
    g.add(0, g.of());
    g.add(1, g.of());
  });
}

Variable activation(Activation kind, const Variable& x) {
  Tensor y = empty_like(x.value());
  backend(x.device()).activation(kind, x.value(), y);
  return record("activation", y, {x}, [kind, saved = x.value()](Gradients& g) {
    backend(saved.device()).activation_backward(kind, saved, g.of(), g.into(0));
  });
}

Variable swiglu(const Variable& gate, const Variable& up) {
  check_same("swiglu", gate, up);
  Tensor y = empty_like(up.value());
  backend(up.device()).swiglu(gate.value(), up.value(), y);
  return record("swiglu", y, {gate, up}, [gate = gate.value(), up = up.value()](Gradients& g) {
    // The kernel writes both; an input that wants none gets a buffer that is dropped.
    Into dgate = g.into(0), dup = g.into(1);
    dgate.tensor = dgate.wanted() ? dgate.tensor : empty_like(gate);
    dup.tensor = dup.wanted() ? dup.tensor : empty_like(up);
    backend(up.device()).swiglu_backward(gate, up, g.of(), dgate, dup);
  });
}

Variable softcap(const Variable& x, double cap) {
  check(cap > 0, "[softcap] the cap must be positive: got {}", cap);
  Tensor y = empty_like(x.value());
  backend(x.device()).softcap(x.value(), cap, y);
  return record("softcap", y, {x}, [cap, y](Gradients& g) {
    backend(y.device()).softcap_backward(y, cap, g.of(), g.into(0));
  });
}

Variable dropout(const Variable& x, double p, const RandomStream& stream, int64_t first) {
  check(p >= 0 && p < 1, "[dropout] the probability must be in [0, 1): got {}", p);
  Tensor y = empty_like(x.value());
  backend(x.device()).dropout(x.value(), p, stream, first, {y});
  return record("dropout", y, {x}, [p, stream, first](Gradients& g) {
    backend(g.of().device()).dropout(g.of(), p, stream, first, g.into(0));
  });
}

}  // namespace headroom::autograd
