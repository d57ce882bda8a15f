// Names of devices, both ways.
#include "tensor/device.h"

#include <algorithm>
#include <charconv>

#include "tensor/check.h"

namespace headroom {

std::string name_of(Device device) {
  return device.type == Device::Type::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Device parse_device(std::string_view name, std::string_view what) {
  constexpr std::string_view kGpu = "cuda:";
  if (name == "cpu") {
    return kCpu;
  }
  Device gpu{Device::Type::cuda, 0};
  if (name == "cuda") {
    return gpu;
  }
  const char* end = name.data() + name.size();
  const auto [stop, error] =
      std::from_chars(name.data() + std::min(kGpu.size(), name.size()), end, gpu.index);
  check_input(
      name.starts_with(kGpu) && error == std::errc() && stop == end && gpu.index >= 0,
      "{} is {}, but must be cpu, cuda (the first GPU) or cuda:N (the N-th, counted from 0)", what,
      name);
  return gpu;
}

}  // namespace headroom
