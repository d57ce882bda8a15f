// Training that an exhibit needs: done once, and found again the next time.
#pragma once

#include <filesystem>

#include "configs/config.h"
#include "experiments/exhibit.h"

namespace headroom::experiments {

/// Trains `config` into `folder`, going on with what lies there. Tells the study's progress in
/// steps; throws Interrupted, with everything saved, when the user asks to stop.
void train_once(const configs::Config& config, const std::filesystem::path& folder,
                const Study& study);

}  // namespace headroom::experiments
