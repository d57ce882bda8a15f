// A program that mpirun started several times: who speaks, what may be done together, and how one
// worker's failure ends all.
#pragma once

#include <string>
#include <string_view>

#include "cli/common.h"
#include "kernels/comm.h"

namespace headroom::cli {

/// Finds the other workers, if there are any. From here on, those beside the first print nothing on
/// stdout and their number on stderr. main() calls it before anything is said. Throws InputError.
void join_workers();
/// Refuses several workers for a command that knows only one; quiets those beside the first.
void check_workers(const std::string& command, Common& common);
/// The workers for a job on `device`, this one's. Where it is a GPU they may meet only here: the
/// cores are then divided anew, and those beside the first are quiet from here on.
kernels::Communicator& share_job(Device device, Common& common);

/// Says what went wrong and returns `status`; where there are several workers, ends all of them
/// with it. What all workers meet is said by the first one alone.
int fail(int status, std::string_view what);

}  // namespace headroom::cli
