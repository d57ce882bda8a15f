// What has no file of its own family: recording, and the kernels that are functions outside the
// class.
#include "kernels/cpu/cpu_backend.h"

#include "kernels/call_recording.h"
#include "kernels/cpu/attention.h"

namespace headroom::kernels::cpu {

std::unique_ptr<Recording> CpuBackend::record(const std::function<void()>& step) {
  return std::make_unique<CallRecording>(kCpu, step);
}

void CpuBackend::attention(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  cpu::attention(in, out, lse);
}

void CpuBackend::attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                                    const Tensor& dout, const Into& dq, const Into& dk,
                                    const Into& dv, const Into& dsink) {
  cpu::attention_backward(in, out, lse, dout, dq, dk, dv, dsink);
}

}  // namespace headroom::kernels::cpu
