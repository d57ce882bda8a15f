// AdamW in one sweep, Muon matrix by matrix.
#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/backend.h"
#include "nn/checkpoint.h"

namespace headroom::train {

using kernels::backend;
using kernels::Transpose;

Rule rule_of(const configs::TrainConfig& train, const nn::Parameter& parameter) {
  const bool hidden_matrix =
      parameter.value.shape().rank() == 2 && parameter.name.starts_with("model.layers.");
  return train.optimizer == configs::OptimizerKind::muon && hidden_matrix ? Rule::muon
                                                                          : Rule::adamw;
}

bool decays(const nn::Parameter& parameter) { return parameter.value.shape().rank() == 2; }

Optimizer::Optimizer(const configs::TrainConfig& train,
                     const std::vector<nn::Parameter>& parameters, DType matrix_dtype)
    : train_(train), matrix_dtype_(matrix_dtype) {
  for (const nn::Parameter& p : parameters) {
    const auto zeros = [&p] {
      return Tensor::zeros(p.value.shape(), p.value.dtype(), p.value.device());
    };
    if (rule_of(train, p) == Rule::muon) {
      muon_.push_back({p, zeros()});
    } else {
      adam_.push_back({p, zeros(), zeros()});
    }
  }
}

void Optimizer::update(int64_t step, double factor, double grad_scale) {
  const bool mixed = train_.optimizer == configs::OptimizerKind::muon;
  adamw(step, factor * (mixed ? train_.adamw_lr : train_.lr), grad_scale);
  for (Muon& each : muon_) {
    muon(each, factor * train_.lr, grad_scale);
    each.parameter.value.changed();
  }
}

void Optimizer::adamw(int64_t step, double rate, double grad_scale) {
  std::vector<kernels::AdamWTensors> tensors;
  for (Adam& each : adam_) {
    nn::Variable& p = each.parameter.value;
    tensors.push_back(
        {p.value(), p.grad(), each.m, each.v, decays(each.parameter) ? train_.weight_decay : 0.0});
    p.changed();
  }
  if (!tensors.empty()) {
    backend(tensors[0].param.device())
        .adamw(tensors, {rate, train_.beta1, train_.beta2, configs::kAdamwEps, step, grad_scale});
  }
}

void Optimizer::muon(Muon& one, double rate, double grad_scale) const {
  Tensor weight = one.parameter.value.value();
  const Tensor& grad = one.parameter.value.grad();
  kernels::Backend& kernels = backend(weight.device());
  const auto like = [&weight](DType dtype) {
    return Tensor::empty(weight.shape(), dtype, weight.device());
  };

  // momentum = mu momentum + g, direction = g + mu momentum (Nesterov).
  kernels.scale(one.momentum, train_.momentum, {one.momentum});
  kernels.scale(grad, grad_scale, {one.momentum, true});
  Tensor direction = like(weight.dtype());
  kernels.scale(grad, grad_scale, {direction});
  kernels.scale(one.momentum, train_.momentum, {direction, true});

  if (matrix_dtype_ != weight.dtype()) {
    Tensor narrow = like(matrix_dtype_);
    kernels.cast(direction, narrow);
    kernels.cast(orthogonal(narrow), direction);
  } else {
    direction = orthogonal(direction);
  }
  const double rows = static_cast<double>(weight.dim(0)), cols = static_cast<double>(weight.dim(1));
  kernels.scale(weight, 1 - rate * train_.weight_decay, {weight});
  kernels.scale(direction, -rate * std::sqrt(std::max(1.0, rows / cols)), {weight, true});
}

Tensor orthogonal(const Tensor& x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  constexpr int kSteps = 5;
  constexpr double kTiny = 1e-7;  // a gradient of zeros stays zeros
  kernels::Backend& kernels = backend(x.device());
  // The products are made on the shorter side: X Xᵀ of a wide matrix, Xᵀ X of a tall one.
  const bool wide = x.dim(0) <= x.dim(1);
  const int64_t side = std::min(x.dim(0), x.dim(1));
  const auto empty = [&x](const Shape& shape) {
    return Tensor::empty(shape, x.dtype(), x.device());
  };
  Tensor now = empty(x.shape()), next = empty(x.shape());
  Tensor square = empty({side, side}), poly = empty({side, side});
  const Tensor whole[] = {x};
  kernels.scale(x, 1.0 / (std::sqrt(kernels.sum_of_squares(whole)) + kTiny), {now});
  for (int step = 0; step < kSteps; ++step) {
    kernels.matmul(now, wide ? Transpose::no : Transpose::yes, now,
                   wide ? Transpose::yes : Transpose::no, {square});
    // poly = b A + c A A, next = a X + poly X (or X poly); A is symmetric.
    kernels.matmul(square, Transpose::no, square, Transpose::no, {poly});
    kernels.scale(poly, c, {poly});
    kernels.scale(square, b, {poly, true});
    kernels.scale(now, a, {next});
    kernels.matmul(wide ? poly : now, Transpose::no, wide ? now : poly, Transpose::no,
                   {next, true});
    std::swap(now, next);
  }
  return now;
}

void Optimizer::clear_gradients() {
  for (Adam& each : adam_) {
    each.parameter.value.clear_grad();
  }
  for (Muon& each : muon_) {
    each.parameter.value.clear_grad();
  }
}

double Optimizer::gradient_norm() const {
  std::vector<Tensor> gradients;
  const auto take = [&gradients](const nn::Parameter& p) {
    check(p.value.grad().defined(), "[optimizer] {} has no gradient", p.name);
    gradients.push_back(p.value.grad());
  };
  for (const Adam& each : adam_) {
    take(each.parameter);
  }
  for (const Muon& each : muon_) {
    take(each.parameter);
  }
  return gradients.empty() ? 0.0
                           : std::sqrt(backend(gradients[0].device()).sum_of_squares(gradients));
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto name = [](const char* kind, const nn::Parameter& p) {
    return fmt::format("{}{}.{}", nn::kOptimizerPrefix, kind, p.name);
  };
  for (const Adam& each : adam_) {
    tensors.emplace_back(name("m", each.parameter), each.m);
    tensors.emplace_back(name("v", each.parameter), each.v);
  }
  for (const Muon& each : muon_) {
    tensors.emplace_back(name("momentum", each.parameter), each.momentum);
  }
  return tensors;
}

}  // namespace headroom::train
