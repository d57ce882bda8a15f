// What kernels may have done to memory, for the parts of the runtime's double.
#pragma once

#include <string>

namespace simt {

/// What was written outside an allocation since this was last asked; nothing if nothing was.
std::string broken_guards();

}  // namespace simt
