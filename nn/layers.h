// The modules that hold one parameter or two: Linear, Embedding, Norm.
#pragma once

#include "autograd/ops.h"
#include "configs/config.h"
#include "nn/module.h"

namespace headroom::nn {

/// y = x Wᵀ (+ b), W (out, in).
class Linear : public Module {
 public:
  Linear(const Scope& scope, int64_t in, int64_t out, bool bias, double sd)
      : weight_(parameter(scope, "weight", {out, in}, Init::normal(sd))),
        bias_(bias ? parameter(scope, "bias", {out}, Init::zeros()) : Variable()) {}
  Variable forward(const Variable& x) const { return autograd::linear(x, weight_, bias_); }
  const Variable& weight() const { return weight_; }

 private:
  Variable weight_, bias_;
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
