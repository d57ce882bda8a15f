// Launches, for the parts of the runtime's double.
#pragma once

#include <string>

namespace simt {

/// Of the kernel that failed last: what the harness has to say about it.
const std::string& launch_report();

}  // namespace simt
