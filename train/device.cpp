#include "train/device.h"

#include "kernels/backend.h"

namespace headroom::train {

Device choose_device(std::optional<Device> asked, const configs::TrainConfig& train) {
  const Device device = asked.value_or(configs::first_of(train.device));
  kernels::backend(device).set_arithmetic(
      {.deterministic = train.deterministic, .tf32 = train.tf32});
  return device;
}

}  // namespace headroom::train
