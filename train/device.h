// Where a run computes, and how.
#pragma once

#include <optional>

#include "configs/config.h"

namespace headroom::train {

/// `asked` (--device), or the first device of train.device's kind where nobody asked. Throws
/// InputError where this build has no kernels for it or this machine has no such device. From here
/// on it computes as train.deterministic and train.tf32 say.
Device choose_device(std::optional<Device> asked, const configs::TrainConfig& train);

}  // namespace headroom::train
