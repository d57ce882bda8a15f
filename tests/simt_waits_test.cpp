// How often the host waits for the device: a step that waits in its middle leaves the device idle.
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_allocator.h"
#include "kernels/cuda/runtime.h"
#include "tests/simt/gpu.h"

namespace headroom::testing {
namespace {

/// 1024 sequences of 512 tokens, and their targets.
TEST(Waits, ALargeBatchIsCopiedWithoutOne) {
  kernels::cuda::CudaAllocator memory;
  const Tensor ids = Tensor::zeros({1024, 512}, DType::i32);
  const unsigned before = simt::waits();
  for (int copy = 0; copy < 2; ++copy) {
    memory.copy(memory.allocate(ids.nbytes()), gpu(), ids.raw(), kCpu, ids.nbytes());
  }
  EXPECT_EQ(simt::waits(), before);
  kernels::cuda::synchronize();  // what is being copied is about to be given back
}

}  // namespace
}  // namespace headroom::testing
