// From a floating tensor's element type to a template argument.
#pragma once

#include "tensor/tensor.h"

namespace headroom {

/// Calls f with the elements of a floating tensor on the host: a T* of a Tensor, a const T* of a
/// const one.
template <class AnyTensor, class F>
auto with_floats(AnyTensor& x, const F& f) {
  switch (x.dtype()) {
    case DType::f64:
      return f(x.template data<double>());
    case DType::f32:
      return f(x.template data<float>());
    case DType::bf16:
      return f(x.template data<bf16>());
    case DType::f16:
      return f(x.template data<f16>());
    default:
      throw Error(fmt::format("[tensor] floating types only: got {}", name_of(x.dtype())));
  }
}

}  // namespace headroom
