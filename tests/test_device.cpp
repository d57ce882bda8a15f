#include "tests/test_device.h"

#include <cstdlib>
#include <string>

namespace headroom::testing {

Device test_device() {
  static const Device device = [] {
    const char* name = std::getenv("HEADROOM_TEST_DEVICE");
    return name != nullptr && std::string(name) == "cuda" ? Device{Device::Type::cuda, 0} : kCpu;
  }();
  return device;
}

kernels::Backend& test_backend() { return kernels::backend(test_device()); }

bool test_device_is_slow() { return false; }

}  // namespace headroom::testing
