// AdamW, and Muon for the hidden matrices with AdamW for the rest: how gradients change weights.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "configs/config.h"
#include "kernels/comm.h"
#include "nn/module.h"

namespace headroom::train {

/// Which rule updates a parameter. Weight decay is decoupled and binds parameters with two
/// dimensions, embeddings included, and no others.
enum class Rule : uint8_t { adamw, muon };
Rule rule_of(const configs::TrainConfig& train, const nn::Parameter& parameter);
bool decays(const nn::Parameter& parameter);

/// Tensors of a checkpoint by name.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The optimizer of a list of parameters, which it keeps handles to.
///
/// AdamW: Loshchilov and Hutter, arXiv 1711.05101; state optimizer.m.NAME and optimizer.v.NAME.
/// Muon: Keller Jordan 2024, "Muon: an optimizer for hidden layers in neural networks": Nesterov
/// momentum, its direction orthogonalised by five Newton-Schulz steps, scaled by
/// sqrt(max(1, rows / columns)); state optimizer.momentum.NAME. It takes the matrices of
/// model.layers, with rate train.lr; AdamW takes the others with train.adamw_lr.
///
/// With train.shard_optimizer each of several workers keeps the state of a part of the parameters,
/// updates these and sends them to the others (ZeRO stage 1: Rajbhandari et al. 2020, arXiv
/// 1910.02054, section 5.1).
class Optimizer {
 public:
  /// Newton-Schulz steps are computed in `matrix_dtype`: bf16 for a model in f32 that trains in
  /// bf16, else the parameters' own type.
  Optimizer(const configs::TrainConfig& train, const std::vector<nn::Parameter>& parameters,
            DType matrix_dtype, kernels::Communicator& workers = kernels::alone());

  /// Gradients that are sums over `count` batches, to be clipped to this norm of their mean (0: not
  /// clipped), whose squares gradient_squares() has summed.
  struct Clip {
    Tensor squares;
    double count = 1, norm = 0;
  };
  /// Update `step` (from 1) from the gradients the parameters hold, as clip_scale() of
  /// kernels/backend.h scales them, at `factor` times the peak rates: none if one of them is not
  /// finite. The gradients stay; clear_gradients() drops them.
  void update(int64_t step, double factor, const Clip& clip);
  void clear_gradients();

  /// The sum of squares of all gradients, (): f64, on their device.
  Tensor gradient_squares() const;

  /// The state that this worker keeps, by name; the tensors share the optimizer's memory, so
  /// writing to them loads it.
  NamedTensors state() const;
  /// The state of all workers, which all call this; copies where it is another's.
  NamedTensors whole_state() const;
  /// Tensors of the whole state, and their bytes.
  int64_t whole_tensors() const;
  int64_t whole_bytes() const;

 private:
  struct Owned {
    nn::Parameter parameter;
    Rule rule = Rule::adamw;
    int64_t owner = 0;  // the worker that updates it
  };
  struct Adam {
    nn::Parameter parameter;
    Tensor m, v;
  };
  struct Muon {
    nn::Parameter parameter;
    Tensor momentum;
  };
  void adamw(int64_t step, double rate, const Tensor& grad_scale);
  /// One update of matrices of one shape, which go through the iteration together.
  void muon(std::span<Muon> matrices, double rate, const Tensor& grad_scale) const;

  void share_weights();

  const configs::TrainConfig train_;
  const DType matrix_dtype_;
  kernels::Communicator& workers_;
  std::vector<Owned> all_;  // those of AdamW, then Muon's: matrices of one shape side by side
  std::vector<Adam> adam_;  // of these, what this worker updates
  std::vector<Muon> muon_;
};

/// The orthogonal directions of a stack of matrices x (n, rows, columns): for each five
/// Newton-Schulz steps with coefficients 3.4445, -4.7750, 2.0315 on x / |x|, which bring every
/// singular value near 1 (0.7 to 1.2). Computed in x's type.
Tensor orthogonal(const Tensor& x);
}  // namespace headroom::train
