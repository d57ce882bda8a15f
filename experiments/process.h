// Runs another program without a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::experiments {

struct ProcessResult {
  int status = 0;  ///< exit status, or 128 + the signal that ended it
  std::string out;
  std::string err;
};

/// Runs arguments[0], looked for on PATH, with `input` on its stdin, and waits for it to end.
/// Throws Error naming the program when it can't be started; a failure of the program itself is its
/// status.
ProcessResult run_process(const std::vector<std::string>& arguments, std::string_view input = {});

}  // namespace headroom::experiments
