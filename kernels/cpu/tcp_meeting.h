// How workers that know one address find one another: each connects to the first one.
#pragma once

#include <chrono>
#include <vector>

#include "kernels/cpu/socket.h"
#include "kernels/worker_place.h"

namespace headroom::kernels::cpu {

/// Connections of a star with worker 0 in its middle: there, one for each worker, its own closed;
/// elsewhere the one to worker 0. Waits until all have come, for so long as `patience` lasts.
/// Throws InputError naming the address and who has not come, or what workers disagree on.
std::vector<Socket> meet(const WorkerPlace& place, std::chrono::milliseconds patience);

}  // namespace headroom::kernels::cpu
