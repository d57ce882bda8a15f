// Workers that know one address: each holds a connection to the first one. Small sums and copies of
// the host's memory go over it, and who fails or dies is noticed by it.
#pragma once

#include <chrono>
#include <memory>

#include "kernels/comm.h"
#include "kernels/worker_place.h"

namespace headroom::kernels::cpu {

constexpr std::chrono::milliseconds kMeetingTime = std::chrono::minutes(5);

/// Waits for all workers of `place`, for so long as `patience` lasts: worker 0 listens at its port,
/// the others try until it does. Throws InputError naming the address and who has not come, or what
/// workers disagree on. Afterwards a worker that ends before the others makes whatever waits for it
/// throw an Error that names it.
std::unique_ptr<Communicator> make_tcp_communicator(
    const WorkerPlace& place, std::chrono::milliseconds patience = kMeetingTime);

}  // namespace headroom::kernels::cpu
