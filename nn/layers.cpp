// A product, or several with the same input: recorded in training, from stored weights in
// inference.
#include "nn/layers.h"

namespace headroom::nn {

std::vector<Variable> Linear::forward_together(const Variable& x,
                                               std::initializer_list<const Linear*> layers) {
  if (autograd::recording()) {
    std::vector<Variable> outputs;
    for (const Linear* layer : layers) {
      outputs.push_back(autograd::linear(x, layer->weight_, layer->bias_));
    }
    return outputs;
  }
  std::vector<kernels::Weights> weights;
  for (const Linear* layer : layers) {
    weights.push_back(layer->stored(x.dtype()));
    if (layer->bias_.defined()) {
      weights.back().bias = layer->bias_.as(x.dtype());
    }
  }
  return autograd::linear(x, weights);
}

void Linear::store(DType type) {
  check(weight_.dtype() == DType::f32, "[linear] only f32 weights can be stored as {}: got {}",
        name_of(type), name_of(weight_.dtype()));
  stored_ = {};
  if (type == DType::i8) {
    const Device device = weight_.device();
    stored_.values = Tensor::empty(weight_.shape(), DType::i8, device);
    stored_.scales = Tensor::empty({weight_.dim(0)}, DType::f32, device);
    kernels::backend(device).quantize_rows(weight_.value(), stored_);
  } else {
    stored_.values = weight_.as(type);
  }
  stored_version_ = weight_.version();
}

kernels::Weights Linear::stored(DType activations) const {
  if (!stored_.values.defined()) {
    return {weight_.as(activations), {}};
  }
  check(stored_version_ == weight_.version(),
        "[linear] the weights have changed since they were stored for inference");
  return stored_;
}

}  // namespace headroom::nn
