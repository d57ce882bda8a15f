// Where a run computes.
#pragma once

#include <optional>

#include "configs/config.h"

namespace headroom::train {

/// `asked` (--device), or the first device of train.device's kind where nobody asked. Throws
/// InputError where this build has no kernels for it or this machine has no such device.
Device choose_device(std::optional<Device> asked, const configs::TrainConfig& train);

}  // namespace headroom::train
