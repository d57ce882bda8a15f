// The harness finds what it is there to find: each fault is planted in a kernel that passes without
// it.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared.h"
#include "tests/contains.h"
#include "tests/simt/device_memory.h"

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

/// CUDA C++ Programming Guide, technical specifications per compute capability.
TEST(Harness, RefusesLaunchesThatADeviceRefuses) {
  const DeviceMemory out(kBlock * sizeof(float));
  const auto refused = [&](dim3 grid, dim3 block, size_t shared_bytes) {
    try {
      launch(sum_block, grid, block, shared_bytes, Fault::none, kBlock, out.as<float>());
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refused(1, kBlock, size_t{100} << 10), "");  // launch() asks for more than 48 KiB
  EXPECT_TRUE(contains(refused(1, 1025, 256), "invalid configuration"));
  EXPECT_TRUE(contains(refused(dim3(1, 65536), kBlock, 256), "invalid configuration"));
  EXPECT_TRUE(contains(refused(1, kBlock, size_t{228} << 10), "invalid argument"));
}

}  // namespace
}  // namespace headroom::testing
