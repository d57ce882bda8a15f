// The host's side of CUDA on the doubles: memory, copies in the order of the stream, and waiting.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cuda/cuda_allocator.h"
#include "kernels/cuda/runtime.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/gpu.h"
#include "tests/simt/host_keeps_out.h"

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
TEST(CudaAllocator, TakesAndGivesBackExactlyWhatItIsAskedForWithoutItsCache) {
  cuda::CudaAllocator memory(false);
  void* first = memory.allocate(1001);
  EXPECT_EQ(memory.bytes_reserved(), 1001U);
  EXPECT_TRUE(simt::is_device_memory(first, 1001));
  EXPECT_FALSE(simt::is_device_memory(first, 1002));
  memory.free(first, 1001);
  EXPECT_EQ(memory.bytes_reserved(), 0U);
  EXPECT_FALSE(simt::is_device_memory(first, 1));
  const int64_t pool = memory.start_recording();
  void* recorded = memory.allocate(7);
  memory.stop_recording();
  memory.free(recorded, 7);  // a replay will use it
  EXPECT_TRUE(simt::is_device_memory(recorded, 7));
  memory.give_up(pool);
}

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

/// cudaEventQuery(): tells of what the event's stream had been asked for when it was recorded, and
/// not of more.
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
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(seen[0], 0);
  EXPECT_EQ(seen[1], 5);
  cuda::synchronize();
  EXPECT_EQ(seen[1], 0);
  cudaEventDestroy(event);
}

/// "cudaErrorInvalidDevice: the device ordinal supplied by the user does not correspond to a valid
/// CUDA device"; "cudaErrorNoDevice: no CUDA-capable devices were detected".
TEST(RuntimeDouble, RefusesADeviceThatIsNotThere) {
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  simt::set_device_count(0);
  int count = 5;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  simt::set_device_count(1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNoDevice);
}

/// cudaFree(): an error for what cudaMalloc() did not return, or has been freed already.
TEST(RuntimeDouble, FreesWhatItGaveOnce) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 8), cudaSuccess);
  EXPECT_EQ(cudaFree(static_cast<std::byte*>(memory) + 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&memory, 8), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(static_cast<std::byte*>(memory) + 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(memory), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
  cudaGetLastError();
}

/// "cudaErrorMemoryAllocation: The API call failed because it was unable to allocate enough memory
/// or other resources".
TEST(RuntimeDouble, RefusesMoreMemoryThanThereIs) {
  constexpr size_t kTooMuch = size_t{1} << 60;
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, kTooMuch), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocHost(&memory, kTooMuch), cudaErrorMemoryAllocation);
  cudaGetLastError();
}

/// cudaMemcpy(): the ends lie where `kind` says, and are as long as the copy.
TEST(RuntimeDouble, RefusesCopiesFromOrToTheWrongPlace) {
  const DeviceMemory memory(8), other(8);
  auto *there = memory.as<std::byte>(), *there_too = other.as<std::byte>();
  std::byte here[16] = {}, here_too[16] = {};
  EXPECT_EQ(cudaMemcpy(there, here, 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(there_too, there, 8, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(here, there_too, 8, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(there + 8, here, 0, cudaMemcpyHostToDevice), cudaSuccess);
  struct Copy {
    void *to, *from;
    size_t bytes;
    cudaMemcpyKind kind;
  };
  for (const Copy& copy : {Copy{here, here_too, 8, cudaMemcpyHostToDevice},
                           Copy{there, there_too, 8, cudaMemcpyHostToDevice},
                           Copy{there, there_too, 8, cudaMemcpyDeviceToHost},
                           Copy{here, here_too, 8, cudaMemcpyDeviceToHost},
                           Copy{there, here, 8, cudaMemcpyDeviceToDevice},
                           Copy{here, there, 8, cudaMemcpyDeviceToDevice},
                           Copy{there, here, 9, cudaMemcpyHostToDevice},
                           Copy{here, there + 1, 8, cudaMemcpyDeviceToHost},
                           Copy{there, there_too, 9, cudaMemcpyDeviceToDevice}}) {
    EXPECT_EQ(cudaMemcpy(copy.to, copy.from, copy.bytes, copy.kind), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, copy.kind, cuda::stream()),
              cudaErrorInvalidValue);
  }
  EXPECT_EQ(cudaMemcpy(there, here, 8, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
  cudaGetLastError();
}

/// cudaMemset(): devPtr points to device memory.
TEST(RuntimeDouble, RefusesToFillWhatIsNotTheDevices) {
  const DeviceMemory memory(8);
  std::byte here[8] = {};
  EXPECT_EQ(cudaMemset(memory.as<void>(), 0, 8), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory.as<void>(), 0, 9), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(here, 0, 8, cuda::stream()), cudaErrorInvalidValue);
  cudaGetLastError();
}

/// CUDA C++ Programming Guide, "Device Memory": the host reaches it by copies alone.
TEST(HostKeepsOutDeathTest, EndsAProgramWhoseHostReachesIn) {
  const DeviceMemory memory(8);
  auto* number = memory.as<int>();
  *number = 1;
  const auto reach = [&](int& seen) {
    const simt::HostKeepsOut host_keeps_out;
    cudaMemset(number, 0, sizeof *number);  // the device may
    seen = *const_cast<volatile int*>(number);
  };
  int seen = 1;
  EXPECT_DEATH(reach(seen), "");
  { const simt::HostKeepsOut host_keeps_out; }
  EXPECT_EQ(*number, 1);  // let in again
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
