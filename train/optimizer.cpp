// AdamW in one sweep, Muon matrix by matrix.
#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernels/backend.h"
#include "nn/checkpoint.h"

namespace headroom::train {

using kernels::backend;
using kernels::Transpose;

namespace {
/// Matrices that go through Muon's iteration together have no more elements than this: so few that
/// what they read and write stays near a processor (4 MB in f32), and enough to fill a GPU.
int64_t stack_elements(Device device) {
  return int64_t{1} << (device.type == Device::Type::cpu ? 20 : 24);
}
}  // namespace

Rule rule_of(const configs::TrainConfig& train, const nn::Parameter& parameter) {
  const bool hidden_matrix =
      parameter.value.shape().rank() == 2 && parameter.name.starts_with("model.layers.");
  return train.optimizer == configs::OptimizerKind::muon && hidden_matrix ? Rule::muon
                                                                          : Rule::adamw;
}

bool decays(const nn::Parameter& parameter) { return parameter.value.shape().rank() == 2; }

Optimizer::Optimizer(const configs::TrainConfig& train,
                     const std::vector<nn::Parameter>& parameters, DType matrix_dtype,
                     kernels::Communicator& workers)
    : train_(train), matrix_dtype_(matrix_dtype), workers_(workers) {
  int64_t numbers = 0;
  for (const nn::Parameter& p : parameters) {
    all_.push_back({p, rule_of(train, p), 0});
    numbers += p.value.value().numel();
  }
  std::ranges::stable_sort(all_, {}, [](const Owned& each) {
    const Shape& shape = each.parameter.value.shape();
    const bool muon = each.rule == Rule::muon;
    return std::tuple(muon, muon ? shape.dim(0) : 0, muon ? shape.dim(1) : 0);
  });
  int64_t before = 0;
  for (Owned& each : all_) {
    const Tensor& value = each.parameter.value.value();
    const bool shards = train.shard_optimizer;
    each.owner = shards ? before * workers.size() / numbers : workers.rank();
    before += value.numel();
    if (each.owner != workers.rank()) {
      continue;
    }
    const auto zeros = [&value] {
      return Tensor::zeros(value.shape(), value.dtype(), value.device());
    };
    if (each.rule == Rule::muon) {
      muon_.push_back({each.parameter, zeros()});
    } else {
      adam_.push_back({each.parameter, zeros(), zeros()});
    }
  }
}

void Optimizer::update(int64_t step, double factor, const Clip& clip) {
  Tensor grad_scale = Tensor::empty({}, DType::f64, clip.squares.device());
  backend(grad_scale.device()).clip_scale(clip.squares, clip.count, clip.norm, grad_scale);
  const bool mixed = train_.optimizer == configs::OptimizerKind::muon;
  adamw(step, factor * (mixed ? train_.adamw_lr : train_.lr), grad_scale);
  const int64_t most_elements = stack_elements(grad_scale.device());
  for (size_t begin = 0, end = 0; begin < muon_.size(); begin = end) {
    const Shape& shape = muon_[begin].parameter.value.shape();
    const auto most = static_cast<size_t>(std::max<int64_t>(1, most_elements / shape.numel()));
    while (end < muon_.size() && end - begin < most &&
           muon_[end].parameter.value.shape() == shape) {
      ++end;
    }
    muon(std::span(muon_).subspan(begin, end - begin), factor * train_.lr, grad_scale);
  }
  if (train_.shard_optimizer) {
    share_weights();
  }
}

void Optimizer::share_weights() {
  for (Owned& each : all_) {
    workers_.broadcast(each.parameter.value.value(), each.owner);
    if (each.owner != workers_.rank()) {
      each.parameter.value.changed();
    }
  }
}

void Optimizer::adamw(int64_t step, double rate, const Tensor& grad_scale) {
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

void Optimizer::muon(std::span<Muon> matrices, double rate, const Tensor& grad_scale) const {
  const Tensor& first = matrices.front().parameter.value.value();
  const int64_t rows = first.dim(0), cols = first.dim(1), count = std::ssize(matrices);
  kernels::Backend& kernels = backend(first.device());
  Tensor directions = Tensor::empty({count, rows, cols}, first.dtype(), first.device());
  std::vector<kernels::MuonTensors> tensors;
  for (Muon& each : matrices) {
    nn::Variable& p = each.parameter.value;
    tensors.push_back({p.value(), p.grad(), each.momentum});
    p.changed();
  }
  kernels.muon_directions(tensors, train_.momentum, grad_scale, directions);
  if (matrix_dtype_ != first.dtype()) {
    Tensor narrow = Tensor::empty(directions.shape(), matrix_dtype_, first.device());
    kernels.cast(directions, narrow);
    kernels.cast(orthogonal(narrow), directions);
  } else {
    directions = orthogonal(directions);
  }
  const double widen =
      std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)));
  kernels.muon_update(tensors, directions, 1 - rate * train_.weight_decay, rate * widen,
                      grad_scale);
}

Tensor orthogonal(const Tensor& x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  constexpr int kSteps = 5;
  constexpr double kTiny = 1e-7;  // a gradient of zeros stays zeros
  kernels::Backend& kernels = backend(x.device());
  // The products are made on the shorter side: X Xᵀ of a wide matrix, Xᵀ X of a tall one.
  const int64_t count = x.dim(0), rows = x.dim(1), cols = x.dim(2);
  const bool wide = rows <= cols;
  const int64_t side = std::min(rows, cols);
  const auto empty = [&x](const Shape& shape) {
    return Tensor::empty(shape, x.dtype(), x.device());
  };
  Tensor now = empty(x.shape()), next = empty(x.shape());
  Tensor square = empty({count, side, side}), poly = empty({count, side, side});
  kernels.unit_matrices(x, kTiny, now);
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
  for (Owned& each : all_) {
    each.parameter.value.clear_grad();
  }
}

Tensor Optimizer::gradient_squares() const {
  std::vector<Tensor> gradients;
  for (const auto& [p, rule, owner] : all_) {
    check(p.value.grad().defined(), "[optimizer] {} has no gradient", p.name);
    gradients.push_back(p.value.grad());
  }
  check(!gradients.empty(), "[optimizer] there is no parameter");
  Tensor sum = Tensor::empty({}, DType::f64, gradients.front().device());
  backend(sum.device()).sum_of_squares(gradients, sum);
  return sum;
}

namespace {
std::string state_name(const char* kind, const nn::Parameter& p) {
  return fmt::format("{}{}.{}", nn::kOptimizerPrefix, kind, p.name);
}
std::span<const char* const> kinds_of(Rule rule) {
  static constexpr const char* kAdamW[] = {"m", "v"};
  static constexpr const char* kMuon[] = {"momentum"};
  return rule == Rule::muon ? std::span<const char* const>(kMuon) : kAdamW;
}
}  // namespace

NamedTensors Optimizer::state() const {
  NamedTensors tensors;
  for (const Adam& each : adam_) {
    tensors.emplace_back(state_name("m", each.parameter), each.m);
    tensors.emplace_back(state_name("v", each.parameter), each.v);
  }
  for (const Muon& each : muon_) {
    tensors.emplace_back(state_name("momentum", each.parameter), each.momentum);
  }
  return tensors;
}

NamedTensors Optimizer::whole_state() const {
  NamedTensors own = state();
  if (!train_.shard_optimizer) {
    return own;
  }
  NamedTensors whole;
  auto next = own.begin();
  for (const auto& [p, rule, owner] : all_) {
    for (const char* kind : kinds_of(rule)) {
      const Tensor& value = p.value.value();
      const Tensor tensor = owner == workers_.rank()
                                ? (next++)->second
                                : Tensor::empty(value.shape(), value.dtype(), value.device());
      workers_.broadcast(tensor, owner);
      whole.emplace_back(state_name(kind, p), tensor);
    }
  }
  return whole;
}

int64_t Optimizer::whole_tensors() const {
  int64_t count = 0;
  for (const Owned& each : all_) {
    count += std::ssize(kinds_of(each.rule));
  }
  return count;
}

int64_t Optimizer::whole_bytes() const {
  int64_t bytes = 0;
  for (const auto& [p, rule, owner] : all_) {
    bytes += std::ssize(kinds_of(rule)) * static_cast<int64_t>(p.value.value().nbytes());
  }
  return bytes;
}

}  // namespace headroom::train
