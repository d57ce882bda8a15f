// A build without cuDNN.
#include "kernels/cuda/cudnn_attention.h"

namespace headroom::kernels::cuda {

bool cudnn_attention(const AttentionInputs& /*in*/, Tensor& /*out*/, Tensor& /*lse*/) {
  return false;
}

bool cudnn_attention_backward(const AttentionInputs& /*in*/, const Tensor& /*out*/,
                              const Tensor& /*lse*/, const Tensor& /*dout*/, const Into& /*dq*/,
                              const Into& /*dk*/, const Into& /*dv*/, bool /*repeatable*/) {
  return false;
}

std::string cudnn_version() { return ""; }

}  // namespace headroom::kernels::cuda
