// The harness finds what it is there to find: each fault is planted in a kernel that passes without
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/tensor_core.h"
#include "tests/contains.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/gpu.h"

namespace headroom::testing {
namespace {

using kernels::cuda::launch;
using kernels::cuda::shared_memory;

constexpr int kBlock = 64;  // two warps

/// What the harness says of a launch; nothing when all is well.
template <class... Params, class... Args>
std::string fault_of(void (*kernel)(Params...), dim3 grid, size_t shared_bytes, Args... args) {
  try {
    launch(kernel, grid, kBlock, shared_bytes, args...);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

enum class Fault { none, race, missing_barrier, off_by_one, uninitialised, divergent, returned };

/// out[i] = sum of the block's numbers; with a fault, if asked for.
__global__ void sum_block(Fault fault, int count, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  const auto numbers = shared_memory<float>(0, kBlock);
  if (fault == Fault::returned && i == 40) {
    return;
  }
  if (fault != Fault::uninitialised || i != 7) {
    numbers[i] = static_cast<float>(i);
  }
  if (fault == Fault::race && i % 32 == 0) {
    numbers[0] = 0;
  }
  if (fault == Fault::divergent && i >= 32) {
    __syncthreads();
  } else if (fault != Fault::missing_barrier) {
    __syncthreads();
  }
  float sum = 0;
  for (int j = 0; j < (fault == Fault::off_by_one ? count + 1 : count); ++j) {
    sum += numbers[j];
  }
  out[i] = sum;
}

std::string fault_of_sum(Fault fault) {
  const DeviceMemory out(kBlock * sizeof(float));
  const std::string found =
      fault_of(sum_block, 1, kBlock * sizeof(float), fault, kBlock, out.as<float>());
  if (found.empty()) {
    EXPECT_EQ(out.as<float>()[5], kBlock * (kBlock - 1) / 2.0F);
  }
  return found;
}

TEST(Harness, FindsNothingInAKernelWithoutFaults) { EXPECT_EQ(fault_of_sum(Fault::none), ""); }

TEST(Harness, FindsARace) {
  const std::string found = fault_of_sum(Fault::race);
  EXPECT_TRUE(contains(found, "data race: writes shared memory at offset 0")) << found;
  EXPECT_TRUE(contains(found, "block (0, 0, 0), thread (32, 0, 0)")) << found;
}

TEST(Harness, FindsAMissingBarrier) {
  // Thread 0 runs on to numbers that nobody has written yet.
  const std::string found = fault_of_sum(Fault::missing_barrier);
  EXPECT_TRUE(contains(found, "uninitialised: reads shared memory at offset 4")) << found;
}

TEST(Harness, FindsAnOffByOne) {
  const std::string found = fault_of_sum(Fault::off_by_one);
  EXPECT_TRUE(contains(found, "out of bounds: element 64 of 64")) << found;
}

TEST(Harness, FindsWhatNobodyWrote) {
  const std::string found = fault_of_sum(Fault::uninitialised);
  EXPECT_TRUE(contains(found, "uninitialised: reads shared memory at offset 28")) << found;
}

TEST(Harness, FindsBarriersThatNotAllReach) {
  const std::string divergent = fault_of_sum(Fault::divergent);
  EXPECT_TRUE(contains(divergent, "not reached by every thread")) << divergent;
  const std::string returned = fault_of_sum(Fault::returned);
  EXPECT_TRUE(contains(returned, "thread 40 has returned")) << returned;
}

/// y (rows, width) = its row's number, written with another distance between rows if asked to.
__global__ void number_rows(int64_t rows, int width, int leading, float* y) {
  for (int64_t i = threadIdx.x; i < rows * width; i += blockDim.x) {
    y[i / width * leading + i % width] = static_cast<float>(i / width);
  }
}

TEST(Harness, FindsAWrongLeadingDimension) {
  const DeviceMemory y(5 * 7 * sizeof(float));
  EXPECT_EQ(fault_of(number_rows, 1, 0, int64_t{5}, 7, 7, y.as<float>()), "");
  const std::string found = fault_of(number_rows, 1, 0, int64_t{5}, 7, 8, y.as<float>());
  EXPECT_TRUE(contains(found, "wrote global memory at offset 140 of an allocation of 140 bytes"))
      << found;
}

/// Operands of the tests of kernels are tensors. Without the allocator's cache, as ctest runs this,
/// each ends where its memory does; with it, what lies up to 255 bytes beyond nobody would see.
TEST(Harness, FindsWhatIsWrittenPastTheEndOfATensor) {
  Tensor y = Tensor::zeros({5, 7}, DType::f32, gpu());
  auto* const y_at = static_cast<float*>(y.raw());
  EXPECT_EQ(fault_of(number_rows, 1, 0, int64_t{35}, 1, 1, y_at), "");
  const std::string found = fault_of(number_rows, 1, 0, int64_t{36}, 1, 1, y_at);
  EXPECT_TRUE(contains(found, "wrote global memory at offset 140 of an allocation of 140 bytes"))
      << found << " (run this with HEADROOM_CUDA_CACHE=0)";
}

/// Lanes of one warp pass numbers on through shared memory, ordered by a barrier of the warp or
/// not.
__global__ void turn_warp(bool ordered, float* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) - lane;
  const auto numbers = shared_memory<float>(0, kBlock);
  numbers[first + lane] = static_cast<float>(lane);
  __syncwarp();
  const float mine = numbers[first + (lane + 1) % 32];
  if (ordered) {
    __syncwarp();
  }
  numbers[first + lane] = mine;
  out[threadIdx.x] = mine;
}

TEST(Harness, WarpBarriersOrderTheirLanes) {
  const DeviceMemory out(kBlock * sizeof(float));
  EXPECT_EQ(fault_of(turn_warp, 1, kBlock * sizeof(float), true, out.as<float>()), "");
  const std::string found = fault_of(turn_warp, 1, kBlock * sizeof(float), false, out.as<float>());
  EXPECT_TRUE(contains(found, "data race")) << found;
}

enum class CopyFault { none, missing_barrier, early_read, early_write };

/// Each thread passes eight numbers on to the one before it, twice, through memory that the second
/// copy fills again: it may begin once all have read the first, though it is only waited for after
/// one more barrier.
__global__ void pass_on(CopyFault fault, const bf16* from, float* out) {
  constexpr int kEach = kernels::cuda::kCopyBytes / 2;
  const int i = static_cast<int>(threadIdx.x);
  const auto tile = shared_memory<bf16>(0, kEach * kBlock);
  const int next = (i + 1) % kBlock * kEach;
  kernels::cuda::copy_async(tile, kEach * i, from + kEach * i);
  kernels::cuda::commit_copies();
  kernels::cuda::wait_for_copies<0>();
  __syncthreads();
  const bf16 first = tile[next];
  if (fault != CopyFault::missing_barrier) {
    __syncthreads();
  }
  kernels::cuda::copy_async(tile, kEach * i, from + kEach * i);
  kernels::cuda::commit_copies();
  if (fault == CopyFault::early_read) {
    out[i] = static_cast<float>(static_cast<bf16>(tile[kEach * i]));
  } else if (fault == CopyFault::early_write) {
    tile[kEach * i] = first;
  }
  __syncthreads();
  kernels::cuda::wait_for_copies<0>();
  __syncthreads();
  out[i] = static_cast<float>(first) + static_cast<float>(static_cast<bf16>(tile[next]));
}

TEST(Harness, FindsCopiesThatBeginTooEarlyOrAreUsedBeforeTheirEnd) {
  const DeviceMemory from(kBlock * kernels::cuda::kCopyBytes), out(kBlock * sizeof(float));
  for (int i = 0; i < kBlock * 8; ++i) from.as<bf16>()[i] = bf16(static_cast<float>(i / 8));
  const auto found = [&](CopyFault fault) {
    return fault_of(pass_on, 1, kBlock * kernels::cuda::kCopyBytes, fault,
                    static_cast<const bf16*>(from.as<bf16>()), out.as<float>());
  };
  EXPECT_EQ(found(CopyFault::none), "");
  EXPECT_EQ(out.as<float>()[5], 12);
  const std::string missing = found(CopyFault::missing_barrier);
  EXPECT_TRUE(contains(missing, "data race")) << missing;
  for (const CopyFault fault : {CopyFault::early_read, CopyFault::early_write}) {
    const std::string early = found(fault);
    EXPECT_TRUE(contains(early, "shared memory at offset 0, which thread 0 copies to")) << early;
  }
}

enum class Matrices { multiply, load, in_order };

/// Lanes read what others of the warp wrote, with an instruction of the warp between the two that
/// waits for all of its lanes and orders nothing, or a barrier.
__global__ void read_across(Matrices between, float* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) - lane;
  const auto tile = shared_memory<bf16>(0, 8 * kBlock);
  for (int i = 0; i < 8; ++i) {
    tile[8 * (first + lane) + i] = bf16(static_cast<float>(lane));
  }
  uint32_t loaded[4];
  if (between == Matrices::multiply) {
    kernels::cuda::FragmentC c{};
    kernels::cuda::multiply_add({}, {}, c);
  } else if (between == Matrices::load) {
    kernels::cuda::load_matrices(tile, 8 * (first + lane), loaded);
  } else {
    __syncwarp();
  }
  out[threadIdx.x] = static_cast<float>(static_cast<bf16>(tile[8 * (first + (lane + 1) % 32)]));
}

TEST(Harness, InstructionsOfTensorCoresOrderNoMemory) {
  const DeviceMemory out(kBlock * sizeof(float));
  const auto found = [&](Matrices between) {
    return fault_of(read_across, 1, 16 * kBlock, between, out.as<float>());
  };
  EXPECT_EQ(found(Matrices::in_order), "");
  EXPECT_EQ(out.as<float>()[40], 9);
  EXPECT_TRUE(contains(found(Matrices::multiply), "data race: reads")) << found(Matrices::multiply);
  EXPECT_TRUE(contains(found(Matrices::load), "data race: reads")) << found(Matrices::load);
}

enum class Shuffle { whole, own_lane_missing, source_missing, lane_elsewhere };

__global__ void shuffle_lanes(Shuffle kind, int* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned all = 0xffffffffU, half = 0xffffU;
  if (kind == Shuffle::lane_elsewhere && lane == 3) {
    return;
  }
  int got = 0;
  if (kind == Shuffle::source_missing) {
    got = lane < 16 ? __shfl_xor_sync(half, lane, 16) : 0;
  } else {
    got = __shfl_xor_sync(kind == Shuffle::own_lane_missing ? half : all, lane, 1);
  }
  out[threadIdx.x] = got;
}

TEST(Harness, FindsShufflesWithALaneMissing) {
  const DeviceMemory out(kBlock * sizeof(int));
  const auto found = [&](Shuffle kind) {
    return fault_of(shuffle_lanes, 1, 0, kind, out.as<int>());
  };
  EXPECT_EQ(found(Shuffle::whole), "");
  EXPECT_EQ(out.as<int>()[33], 0);
  EXPECT_TRUE(contains(found(Shuffle::own_lane_missing), "lacks the calling lane 16"));
  EXPECT_TRUE(contains(found(Shuffle::source_missing), "reads lane 16, which takes no part"));
  EXPECT_TRUE(contains(found(Shuffle::lane_elsewhere), "reads lane 3, which takes no part"));
}

TEST(Harness, VotesAndShufflesAreThoseOfTheManual) {
  struct Votes {
    static __global__ void run(unsigned* out) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const unsigned odd = __ballot_sync(0xffffffffU, lane % 2);
      const int down = __shfl_down_sync(0xffffffffU, lane, 4U),
                third = __shfl_sync(0xffffffffU, lane, 3);
      const int any = __any_sync(0xffffffffU, lane == 9), all = __all_sync(0xffffffffU, lane == 9);
      out[threadIdx.x] = odd == 0xaaaaaaaaU && down == (lane < 28 ? lane + 4 : lane) &&
                         third == 3 && any == 1 && all == 0;
    }
  };
  const DeviceMemory out(kBlock * sizeof(unsigned));
  EXPECT_EQ(fault_of(&Votes::run, 1, 0, out.as<unsigned>()), "");
  for (int i = 0; i < kBlock; ++i) EXPECT_EQ(out.as<unsigned>()[i], 1U) << i;
}

__global__ void count(unsigned* sum, unsigned* seen) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  seen[atomicAdd(sum, 1U)] = i;
}

/// No addition is lost, and each thread gets the sum before its own.
TEST(Harness, AtomicsAddOneAfterAnother) {
  constexpr unsigned kThreads = 3 * kBlock;
  const DeviceMemory sum(sizeof(unsigned)), seen(kThreads * sizeof(unsigned));
  *sum.as<unsigned>() = 0;
  EXPECT_EQ(fault_of(count, 3, 0, sum.as<unsigned>(), seen.as<unsigned>()), "");
  EXPECT_EQ(*sum.as<unsigned>(), kThreads);
  auto* const first = seen.as<unsigned>();
  std::sort(first, first + kThreads);
  for (unsigned i = 0; i < kThreads; ++i) EXPECT_EQ(first[i], i);
}

__global__ void reach_beyond(bool reads, float* out) {
  // A view that says more than the launch gave.
  const auto numbers = shared_memory<float>(0, 2 * kBlock);
  if (reads) {
    *out = numbers[kBlock];
  } else {
    numbers[kBlock] = 1;
  }
}

TEST(Harness, FindsAccessesBeyondWhatTheLaunchGave) {
  const DeviceMemory out(sizeof(float));
  const auto found = [&](bool reads) {
    return fault_of(reach_beyond, 1, kBlock * sizeof(float), reads, out.as<float>());
  };
  EXPECT_TRUE(contains(found(true), "reads 4 bytes at offset 256 of 256")) << found(true);
  EXPECT_TRUE(contains(found(false), "writes 4 bytes at offset 256 of 256")) << found(false);
}

__global__ void do_nothing() {}

cudaError_t launched(dim3 grid, dim3 block, size_t shared_bytes = 0) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  return cudaLaunchKernelEx(&config, do_nothing);
}

/// CUDA C++ Programming Guide, technical specifications per compute capability.
TEST(Harness, RefusesLaunchesThatADeviceRefuses) {
  EXPECT_EQ(launched(1, dim3(16, 1, 64)), cudaSuccess);
  for (const dim3& grid :
       {dim3(0x80000000U), dim3(1, 65536), dim3(1, 1, 65536), dim3(0), dim3(1, 0), dim3(1, 1, 0)}) {
    EXPECT_EQ(launched(grid, kBlock), cudaErrorInvalidConfiguration)
        << grid.x << " " << grid.y << " " << grid.z;
  }
  for (const dim3& block :
       {dim3(1025), dim3(32, 33), dim3(1, 1, 65), dim3(0), dim3(1, 0), dim3(1, 1, 0)}) {
    EXPECT_EQ(launched(1, block), cudaErrorInvalidConfiguration)
        << block.x << " " << block.y << " " << block.z;
  }
  cudaGetLastError();
}

/// The same guide, "Shared Memory": more than 48 KiB "are architecture-specific" and need the
/// attribute, as far as the architecture has them.
TEST(Harness, GivesMuchSharedMemoryToWhoAsks) {
  const auto asked = [](size_t bytes) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(do_nothing),
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  };
  constexpr size_t kKiB = 1024;
  EXPECT_EQ(launched(1, kBlock, 48 * kKiB), cudaSuccess);
  EXPECT_EQ(launched(1, kBlock, 48 * kKiB + 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(asked(99 * kKiB + 1), cudaErrorInvalidValue);
  EXPECT_EQ(asked(99 * kKiB), cudaSuccess);
  EXPECT_EQ(launched(1, kBlock, 99 * kKiB), cudaSuccess);
  EXPECT_EQ(asked(0), cudaSuccess);
  EXPECT_EQ(launched(1, kBlock, 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(asked(static_cast<size_t>(-1)), cudaErrorInvalidValue);
  constexpr auto kCarveout = static_cast<cudaFuncAttribute>(9);  // which nothing here sets
  EXPECT_EQ(cudaFuncSetAttribute(reinterpret_cast<const void*>(do_nothing), kCarveout, 50),
            cudaErrorInvalidValue);
  cudaGetLastError();
}

}  // namespace
}  // namespace headroom::testing
