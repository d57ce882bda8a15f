// What the tests of kernels run in the harness: the kernels that exist for GPUs, in place of the
// CPU's. Fibers share the host's memory, so operands stay where they are.
#include "tests/test_device.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/store_kv.h"
#include "kernels/traced_backend.h"

namespace headroom::testing {

namespace {

using kernels::AttentionInputs;
using kernels::Into;

class HarnessBackend final : public kernels::TracedBackend {
 public:
  using TracedBackend::TracedBackend;

  void attention(const AttentionInputs& in, Tensor& out, Tensor& lse) override {
    kernels::cuda::attention(in, out, lse);
  }
  void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                          const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                          const Into& dsink) override {
    kernels::cuda::attention_backward(in, out, lse, dout, dq, dk, dv, dsink);
  }
  void store_kv(const Tensor& x, Tensor& to, const kernels::KVCode& code, int64_t slot) override {
    kernels::cuda::store_kv(x, to, code, slot);
  }
  void linear(const Tensor& x, std::span<const kernels::Weights> w, std::span<Tensor> y) override {
    if (x.dtype() == DType::f64) {
      return TracedBackend::linear(x, w, y);  // no few_rows() for gradient checks
    }
    kernels::cuda::few_rows(x, w, y);
  }
};

}  // namespace

Device test_device() { return kCpu; }

kernels::Backend& test_backend() {
  static HarnessBackend backend(kernels::backend(kCpu));
  return backend;
}

bool test_device_is_slow() { return true; }

}  // namespace headroom::testing
