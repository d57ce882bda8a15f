// The first GPU of this machine.
#include "tests/test_device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/cuda_device.h"

namespace headroom::testing {

namespace {

/// CTest takes this status for a skipped test, and anybody else for a failure: nothing was tested.
constexpr int kSkipped = 77;

class NeedsAGpu : public ::testing::Environment {
 public:
  void SetUp() override {
    if (kernels::cuda::device_count() == 0) {
      fmt::print(stderr, "tests_cuda: this machine has no NVIDIA GPU that CUDA can use\n");
      std::exit(kSkipped);
    }
  }
};

// GoogleTest deletes it.
const ::testing::Environment* const kNeedsAGpu = ::testing::AddGlobalTestEnvironment(new NeedsAGpu);

}  // namespace

Device test_device() { return {Device::Type::cuda, 0}; }

kernels::Backend& test_backend() { return kernels::backend(test_device()); }

bool test_device_is_slow() { return std::getenv("HEADROOM_TEST_SLOW") != nullptr; }

bool test_device_is_a_double() { return false; }

std::shared_ptr<void> keep_host_out() { return nullptr; }

}  // namespace headroom::testing
