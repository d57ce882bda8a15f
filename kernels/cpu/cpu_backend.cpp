// The kernels that are functions of their own, outside the class.
#include "kernels/cpu/cpu_backend.h"

#include "kernels/cpu/attention.h"

namespace headroom::kernels::cpu {

void CpuBackend::attention(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  cpu::attention(in, out, lse);
}

void CpuBackend::attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                                    const Tensor& dout, const Into& dq, const Into& dk,
                                    const Into& dv, const Into& dsink) {
  cpu::attention_backward(in, out, lse, dout, dq, dk, dv, dsink);
}

}  // namespace headroom::kernels::cpu
