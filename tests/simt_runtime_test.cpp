// The host's side of CUDA on the doubles: memory, copies in the order of the stream, and waiting.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cuda/cuda_allocator.h"
#include "kernels/cuda/runtime.h"
#include "tests/simt/gpu.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;

std::vector<float> counting(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(CudaAllocator, HandsOutWhatWasFreedAndCountsBytes) {
  cuda::CudaAllocator memory;
  void* first = memory.allocate(1000);
  EXPECT_EQ(memory.bytes_in_use(), 1000U);
  EXPECT_EQ(memory.bytes_reserved(), 1024U);
  memory.free(first, 1000);
  EXPECT_EQ(memory.bytes_in_use(), 0U);
  EXPECT_EQ(memory.allocate(1024), first);  // rounds to the same size
  EXPECT_NE(memory.allocate(1024), first);
  EXPECT_EQ(memory.bytes_reserved(), 2048U);
  EXPECT_EQ(memory.peak_bytes(), 2048U);
}

TEST(CudaAllocator, GivesIdleMemoryBackBeforeItSaysThatThereIsNone) {
  cuda::CudaAllocator memory;
  memory.free(memory.allocate(4096), 4096);
  try {
    memory.allocate(size_t{1} << 60);
    FAIL() << "there was so much memory";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[memory] the GPU has no 1152921504606846976 more bytes; 0 are in use");
  }
  EXPECT_EQ(memory.bytes_reserved(), 0U);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // or the next launch would report it
}

/// Copies pass through pinned memory, large ones in pieces: the source is free on return.
TEST(CudaAllocator, CopiesWhatTheSourceHeldThen) {
  for (const size_t n : {size_t{5}, size_t{3000000}}) {  // 12 MB: more than is pinned
    std::vector<Tensor> there;
    for (int i = 0; i < 3; ++i) {
      Tensor host = Tensor::from(counting(n), {static_cast<int64_t>(n)});
      host.data<float>()[0] = static_cast<float>(i);
      there.push_back(host.to(gpu()));
      host.data<float>()[0] = -1;
    }
    for (int i = 0; i < 3; ++i) {
      std::vector<float> expected = counting(n);
      expected[0] = static_cast<float>(i);
      EXPECT_EQ(there[static_cast<size_t>(i)].to_vector<float>(), expected);
    }
  }
}

TEST(CudaAllocator, CopiesWithinTheDeviceAndWritesZeros) {
  const Tensor x = Tensor::from(counting(7), {7}).to(gpu());
  Tensor copy = x.clone();
  EXPECT_EQ(copy.to_vector<float>(), counting(7));
  copy.zero();
  EXPECT_EQ(copy.to_vector<float>(), std::vector<float>(7, 0.0F));
  EXPECT_EQ(x.to_vector<float>(), counting(7));
}

/// Memory that is freed while a kernel may still read it, and handed out again, is written after.
TEST(CudaStream, KeepsTheOrderOfWhatItIsAskedFor) {
  Tensor sum = Tensor::empty({4}, DType::f32, gpu());
  {
    const Tensor a = Tensor::from(counting(4), {4}).to(gpu());
    kernels::backend(gpu()).add(a, a, sum);
  }
  const Tensor other = Tensor::zeros({4}, DType::f32, gpu());
  EXPECT_EQ(sum.to_vector<float>(), (std::vector<float>{2, 4, 6, 8}));
}

/// Programming Guide, "Asynchronous Concurrent Execution": a copy is done when its stream says so.
TEST(RuntimeDouble, CopiesOnlyWhenSomethingWaits) {
  Tensor there = Tensor::zeros({1}, DType::f32, gpu());
  cuda::synchronize();
  const float value = 3;
  cudaMemcpyAsync(there.raw(), &value, sizeof value, cudaMemcpyHostToDevice, cuda::stream());
  float seen = 0;
  cudaMemcpyAsync(&seen, there.raw(), sizeof seen, cudaMemcpyDeviceToHost, cuda::stream());
  EXPECT_EQ(seen, 0);
  cuda::synchronize();
  EXPECT_EQ(seen, 3);
}

/// cudaEventSynchronize(): waits for what the event's stream had been asked for when it was
/// recorded, and not for more.
TEST(RuntimeDouble, AnEventIsAPlaceInItsStream) {
  Tensor there = Tensor::zeros({2}, DType::f32, gpu());
  float seen[2] = {5, 5};
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  const auto fetch = [&](int i) {
    cudaMemcpyAsync(seen + i, there.raw(), sizeof(float), cudaMemcpyDeviceToHost, cuda::stream());
  };
  fetch(0);
  cudaEventRecord(event, cuda::stream());
  fetch(1);
  cudaEventSynchronize(event);
  EXPECT_EQ(seen[0], 0);
  EXPECT_EQ(seen[1], 5);
  cuda::synchronize();
  EXPECT_EQ(seen[1], 0);
  cudaEventDestroy(event);
}

TEST(CudaRuntime, SaysWhatFailed) {
  try {
    cuda::check_call(cudaErrorInvalidValue, "copying to the GPU");
    FAIL() << "passed";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[cuda] copying to the GPU failed: invalid argument");
  }
}

}  // namespace
}  // namespace headroom::testing
