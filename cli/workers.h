// A program that mpirun started several times: who speaks, what may be done together, and how one
// worker's failure ends all.
#pragma once

#include <string>
#include <string_view>

#include "cli/common.h"

namespace headroom::cli {

/// Finds the other workers, if there are any. From here on, those beside the first print nothing on
/// stdout and their number on stderr. main() calls it before anything is said. Throws InputError.
void join_workers();
/// Finds those too that meet at one address, unless the command line says that they have no GPUs:
/// before anything else can go wrong, so that it ends all of them. Quiets those beside the first.
/// Refuses several workers for a command that knows only one. Throws InputError.
void share_command(const std::string& command, Common& common);

/// Says what went wrong and returns `status`; where there are several workers, ends all of them
/// with it. What all workers meet is said by the first one alone.
int fail(int status, std::string_view what);

}  // namespace headroom::cli
