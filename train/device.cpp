#include "train/device.h"

#include "kernels/backend.h"

namespace headroom::train {

Device choose_device(std::optional<Device> asked, const configs::TrainConfig& train) {
  const Device device = asked.value_or(configs::first_of(train.device));
  kernels::backend(device);
  return device;
}

}  // namespace headroom::train
