// Runs the threads of a launch, each on a fiber: a thread goes on to its next barrier or warp call
// before another runs, so a kernel's faults are the same in every run.
#pragma once

#include <functional>
#include <string>

#include "simt_device.h"

namespace simt {

/// Runs `thread` for every thread of every block, the blocks one after another in an order drawn
/// from `seed`. Returns what a thread did wrong, with its block and its place; nothing if none did.
std::string run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread,
                unsigned seed);

}  // namespace simt
