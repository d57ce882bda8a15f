// Activations of the MLP and their derivatives.
#include "bench/bench.h"

namespace headroom::bench {

void add_cases() {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  using kernels::Activation;
  for (const auto& [name, kind] :
       {std::pair("gelu_tanh", Activation::gelu_tanh), std::pair("gelu_erf", Activation::gelu_erf),
        std::pair("relu_squared", Activation::relu_squared)}) {
    add_sizes(name, [kind = kind](const Shape& shape, DType type) {
      const Tensor x = normal(shape, type);
      Tensor y = normal(shape, type);
      return memory_bound([=]() mutable { cpu.activation(kind, x, y); }, {x, y});
    });
    add_sizes(std::string(name) + "_backward", [kind = kind](const Shape& shape, DType type) {
      const Tensor x = normal(shape, type), dy = normal(shape, type), dx = normal(shape, type);
      return memory_bound([=] { cpu.activation_backward(kind, x, dy, {dx}); }, {x, dy, dx});
    });
  }
  add_sizes("swiglu", [](const Shape& shape, DType type) {
    const Tensor gate = normal(shape, type), up = normal(shape, type);
    Tensor y = normal(shape, type);
    return memory_bound([=]() mutable { cpu.swiglu(gate, up, y); }, {gate, up, y});
  });
  add_sizes("swiglu_backward", [](const Shape& shape, DType type) {
    const Tensor gate = normal(shape, type), up = normal(shape, type), dy = normal(shape, type);
    const Tensor dgate = normal(shape, type), dup = normal(shape, type);
    return memory_bound([=] { cpu.swiglu_backward(gate, up, dy, {dgate}, {dup}); },
                        {gate, up, dy, dgate, dup});
  });
}

}  // namespace headroom::bench
