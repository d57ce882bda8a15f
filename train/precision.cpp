// Choosing the type of activations, and saying why.
#include "train/precision.h"

namespace headroom::train {

PrecisionChoice choose_precision(configs::Precision asked, Device device, bool native_bf16) {
  const bool gpu = device != kCpu;
  switch (asked) {
    case configs::Precision::fp32:
      return {DType::f32, "fp32"};
    case configs::Precision::bf16:
      return {DType::bf16, gpu || native_bf16
                               ? "bf16"
                               : "bf16 storage with fp32 arithmetic (this processor has "
                                 "no bf16 dot product: fp32 is faster)"};
    case configs::Precision::automatic:
      break;
  }
  if (gpu) {
    return {DType::bf16, "bf16 (auto: the GPU computes in bf16)"};
  }
  return native_bf16
             ? PrecisionChoice{DType::bf16, "bf16 (auto: the processor computes in bf16)"}
             : PrecisionChoice{DType::f32, "fp32 (auto: this processor has no bf16 dot product)"};
}

}  // namespace headroom::train
