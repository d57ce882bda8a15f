// Names of devices.
#include "tensor/device.h"

#include <gmock/gmock.h>

#include "tensor/check.h"

namespace headroom {
namespace {

TEST(Device, IsFoundByItsName) {
  EXPECT_EQ(parse_device("cpu", "--device"), kCpu);
  EXPECT_EQ(parse_device("cuda", "--device"), (Device{Device::Type::cuda, 0}));
  for (const int index : {0, 1, 12}) {
    const Device gpu{Device::Type::cuda, index};
    EXPECT_EQ(parse_device(name_of(gpu), "--device"), gpu);
  }
}

TEST(Device, OfAnotherNameIsRefusedWithWhatIsAllowed) {
  for (const char* name : {"", "gpu", "CPU", "cud", "cuda:", "cuda:x", "cuda:-1", "cuda:+1",
                           "cuda:1 ", "cuda:1.0", "cuda:99999999999", "cuda1", "cpu:0"}) {
    try {
      parse_device(name, "--device");
      ADD_FAILURE() << name;
    } catch (const InputError& error) {
      EXPECT_EQ(error.what(),
                fmt::format("--device is {}, but must be cpu, cuda (the first GPU) or cuda:N (the "
                            "N-th, counted from 0)",
                            name));
    }
  }
}

}  // namespace
}  // namespace headroom
