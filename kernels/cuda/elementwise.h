// Loops over elements on a GPU: what CudaBackend's functions of these names do.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

void fill(Tensor& x, double value);
void cast(const Tensor& x, Tensor& y);
void scale(const Tensor& x, double a, const Into& y);
void add(const Tensor& a, const Tensor& b, Tensor& y);
void softcap(const Tensor& x, double cap, Tensor& y);
void softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx);
void activation(Activation kind, const Tensor& x, Tensor& y);
void activation_backward(Activation kind, const Tensor& x, const Tensor& dy, const Into& dx);
void swiglu(const Tensor& gate, const Tensor& up, Tensor& y);
void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy, const Into& dgate,
                     const Into& dup);

}  // namespace headroom::kernels::cuda
