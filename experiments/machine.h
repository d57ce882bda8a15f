// The machine an experiment ran on, for its report.
#pragma once

#include "experiments/result.h"

namespace headroom::experiments {

/// Processor, cores and the threads in use; precision is left to the caller.
Machine this_machine();

}  // namespace headroom::experiments
