// The tests of each layer run on the CPU; simt/test_device.cpp and cuda/test_device.cpp stand in
// its place for other devices.
#include "tests/test_device.h"

namespace headroom::testing {

Device test_device() { return kCpu; }

kernels::Backend& test_backend() { return kernels::backend(test_device()); }

bool test_device_is_slow() { return false; }

bool test_device_is_a_double() { return false; }

std::shared_ptr<void> keep_host_out() { return nullptr; }

}  // namespace headroom::testing
