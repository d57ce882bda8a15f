// From a tensor's element type to template arguments: S is how activations are stored, C what is
// computed in.
#pragma once

#include "tensor/tensor.h"

namespace headroom::kernels {

/// Calls f.operator()<S, C>() for the activation type `dtype`.
template <class F>
void for_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f64:
      return f.template operator()<double, double>();
    case DType::f32:
      return f.template operator()<float, float>();
    case DType::bf16:
      return f.template operator()<bf16, float>();
    default:
      throw Error(
          fmt::format("[kernels] activations are f64, f32 or bf16: got {}", name_of(dtype)));
  }
}

}  // namespace headroom::kernels
