// One up projection, or two under swiglu; one down projection.
#include "nn/mlp.h"

#include "nn/init.h"

namespace headroom::nn {

using configs::MlpKind;

MLP::MLP(const Scope& scope, const configs::ModelConfig& model)
    : kind_(model.mlp),
      gate_proj_(model.mlp == MlpKind::swiglu
                     ? std::make_unique<Linear>(scope.in("gate_proj"), model.n_embd, model.n_ff(),
                                                model.linear_bias(), kInitSd)
                     : nullptr),
      up_proj_(scope.in("up_proj"), model.n_embd, model.n_ff(), model.linear_bias(), kInitSd),
      down_proj_(scope.in("down_proj"), model.n_ff(), model.n_embd, model.linear_bias(),
                 residual_sd(model)) {
  if (gate_proj_ != nullptr) {
    child(*gate_proj_);
  }
  child(up_proj_);
  child(down_proj_);
}

Variable MLP::forward(const Variable& x) const {
  const Variable up = up_proj_.forward(x);
  switch (kind_) {
    case MlpKind::gelu:
      return down_proj_.forward(autograd::activation(autograd::Activation::gelu_tanh, up));
    case MlpKind::gelu_erf:
      return down_proj_.forward(autograd::activation(autograd::Activation::gelu_erf, up));
    case MlpKind::relu2:
      return down_proj_.forward(autograd::activation(autograd::Activation::relu_squared, up));
    case MlpKind::swiglu:
      return down_proj_.forward(autograd::swiglu(gate_proj_->forward(x), up));
  }
  throw Error("[mlp] unknown kind");
}

}  // namespace headroom::nn
