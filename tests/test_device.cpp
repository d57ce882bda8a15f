#include "tests/test_device.h"

#include <cstdlib>
#include <string>

#include "tensor/check.h"

namespace headroom::testing {

namespace {

const std::string& asked() {
  static const std::string name = [] {
    const char* value = std::getenv("HEADROOM_TEST_DEVICE");
    return std::string(value != nullptr ? value : "cpu");
  }();
  check(name == "cpu" || name == "cuda" || name == "cuda-slow",
        "HEADROOM_TEST_DEVICE is {}, but must be cpu, cuda or cuda-slow", name);
  return name;
}

}  // namespace

Device test_device() { return asked() == "cpu" ? kCpu : Device{Device::Type::cuda, 0}; }

kernels::Backend& test_backend() { return kernels::backend(test_device()); }

bool test_device_is_slow() { return asked() == "cuda-slow"; }

std::shared_ptr<void> keep_host_out() { return nullptr; }

}  // namespace headroom::testing
