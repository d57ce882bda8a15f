// The position-wise network of a block: down(f(up(x))), or down(silu(gate(x)) * up(x)) for swiglu
// (arXiv 2002.05202).
#pragma once

#include <memory>
#include <vector>

#include "nn/layers.h"

namespace headroom::nn {

class MLP : public Module {
 public:
  MLP(const Scope& scope, const configs::ModelConfig& model);
  /// x (B, T, C) to (B, T, C).
  Variable forward(const Variable& x) const;

  /// The layers that multiply with matrices.
  std::vector<Linear*> linears();

 private:
  configs::MlpKind kind_;
  std::unique_ptr<Linear> gate_proj_;  // swiglu only
  Linear up_proj_, down_proj_;
};

}  // namespace headroom::nn
