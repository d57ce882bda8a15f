// The headroom program: finds the command, parses its options, runs it and turns what it throws
// into a message and an exit status.
#pragma once

namespace headroom::cli {

/// What main() was given; returns 0 (done), 1 (failed) or 2 (bad usage or input).
int run(int count, char** words);

}  // namespace headroom::cli
