// In the harness the tests of kernels run those for GPUs, on doubles of the runtime and cuBLASLt.
#include "tests/test_device.h"

#include "tests/simt/gpu.h"
#include "tests/simt/host_keeps_out.h"

namespace headroom::testing {

Device test_device() { return gpu(); }

kernels::Backend& test_backend() { return kernels::backend(test_device()); }

bool test_device_is_slow() { return true; }

bool test_device_is_a_double() { return true; }

std::shared_ptr<void> keep_host_out() {
  gpu();
  return std::make_shared<simt::HostKeepsOut>();
}

}  // namespace headroom::testing
