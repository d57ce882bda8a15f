// One up projection, or two under swiglu; one down projection.
#include "nn/mlp.h"

#include "nn/init.h"

namespace headroom::nn {

using configs::MlpKind;

namespace {

autograd::Activation activation_of(MlpKind kind) {
  switch (kind) {
    case MlpKind::gelu:
      return autograd::Activation::gelu_tanh;
    case MlpKind::gelu_erf:
      return autograd::Activation::gelu_erf;
    case MlpKind::relu2:
      return autograd::Activation::relu_squared;
    case MlpKind::swiglu:
      break;
  }
  throw Error("[mlp] no activation of its own");
}

}  // namespace

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

std::vector<Linear*> MLP::linears() {
  if (gate_proj_ == nullptr) {
    return {&up_proj_, &down_proj_};
  }
  return {gate_proj_.get(), &up_proj_, &down_proj_};
}

Variable MLP::forward(const Variable& x) const {
  if (gate_proj_ != nullptr) {
    const auto both = Linear::forward_together(x, {gate_proj_.get(), &up_proj_});
    return down_proj_.forward(autograd::swiglu(both[0], both[1]));
  }
  return down_proj_.forward(autograd::activation(activation_of(kind_), up_proj_.forward(x)));
}

}  // namespace headroom::nn
