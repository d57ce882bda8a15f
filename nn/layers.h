// The modules that hold one parameter or two: Linear, HeadLinear, Embedding, Norm.
#pragma once

#include <initializer_list>
#include <vector>

#include "autograd/ops.h"
#include "configs/config.h"
#include "nn/init.h"
#include "nn/module.h"

namespace headroom::nn {

/// y = x Wᵀ (+ b), W (out, in).
class Linear : public Module {
 public:
  Linear(const Scope& scope, int64_t in, int64_t out, bool bias, double sd)
      : weight_(parameter(scope, "weight", {out, in}, Init::normal(sd))),
        bias_(bias ? parameter(scope, "bias", {out}, Init::zeros()) : Variable()) {}
  /// Multiplies with a matrix that is another module's parameter.
  explicit Linear(Variable tied) : weight_(std::move(tied)) {}

  Variable forward(const Variable& x) const { return forward_together(x, {this})[0]; }
  /// What each of the layers makes of x. In inference their products are one sweep over all the
  /// weights: to wake the threads takes as long as to read a small matrix.
  static std::vector<Variable> forward_together(const Variable& x,
                                                std::initializer_list<const Linear*> layers);

  /// From now on inference multiplies with W as f32, bf16 or i8 (one scale for each output),
  /// whatever the activations are; training with W itself. W must not change afterwards. A copy is
  /// made but for W's own type.
  void store(DType type);
  /// The matrix that inference multiplies with under activations of this type: W in that type
  /// unless store() chose another. Throws when W has changed since.
  kernels::Weights stored(DType activations) const;
  const Variable& weight() const { return weight_; }

 private:
  Variable weight_, bias_;
  kernels::Weights stored_;
  uint64_t stored_version_ = 0;
};

/// A matrix of its own for each head, one under the other in W: from a head's `rows` to `columns`
/// numbers, or with Transpose::yes back. Inference multiplies in the type of the activations:
/// Linear's store() has no counterpart here.
class HeadLinear : public Module {
 public:
  HeadLinear(const Scope& scope, int64_t heads, int64_t rows, int64_t columns,
             autograd::Transpose op)
      : weight_(parameter(scope, "weight", {heads * rows, columns}, Init::normal(kInitSd))),
        op_(op) {}
  /// (..., H, in) to (..., H, out).
  Variable forward(const Variable& x) const { return autograd::head_linear(x, weight_, op_); }
  const Variable& weight() const { return weight_; }

 private:
  Variable weight_;
  autograd::Transpose op_;
};

/// Rows of W (V, C) by index.
class Embedding : public Module {
 public:
  Embedding(const Scope& scope, int64_t rows, int64_t width, double sd)
      : weight_(parameter(scope, "weight", {rows, width}, Init::normal(sd))) {}
  Variable forward(const Tensor& ids, DType dtype) const {
    return autograd::embedding(ids, weight_, dtype);
  }
  const Variable& weight() const { return weight_; }

 private:
  Variable weight_;
};

/// Layer norm or RMS norm over the last axis.
class Norm : public Module {
 public:
  Norm(const Scope& scope, int64_t width, configs::Norm kind, bool bias, double eps)
      : kind_(kind == configs::Norm::layernorm ? autograd::NormKind::layer_norm
                                               : autograd::NormKind::rms_norm),
        eps_(eps),
        weight_(parameter(scope, "weight", {width}, Init::ones())),
        bias_(bias ? parameter(scope, "bias", {width}, Init::zeros()) : Variable()) {}
  Variable forward(const Variable& x) const {
    return autograd::norm(kind_, x, weight_, bias_, eps_);
  }
  /// {x + delta, norm(x + delta)}; without a delta {x, norm(x)}.
  std::pair<Variable, Variable> forward(const Variable& x, const Variable& delta) const {
    return delta.defined() ? autograd::add_norm(kind_, x, delta, weight_, bias_, eps_)
                           : std::pair(x, forward(x));
  }

 private:
  autograd::NormKind kind_;
  double eps_;
  Variable weight_, bias_;
};

}  // namespace headroom::nn
