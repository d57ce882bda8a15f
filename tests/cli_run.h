// Running headroom from the tests of its command line: one thread, so that a busy machine doesn't
// slow them, and stdout as JSON.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run_program.h"

namespace headroom::testing {

using Arguments = std::vector<std::string>;

inline RunResult headroom_run(const Arguments& arguments, RunOptions options = {}) {
  options.environment.emplace("OMP_NUM_THREADS", "1");
  return run_program(arguments, options);
}

/// stdout of a run that must succeed, as JSON.
inline nlohmann::json headroom_json(Arguments arguments, const RunOptions& options = {}) {
  arguments.emplace_back("--json");
  const RunResult run = headroom_run(arguments, options);
  EXPECT_EQ(run.status, 0) << run.err;
  return nlohmann::json::parse(run.out);
}

/// The one message on stderr of a run that must end with `status` and print nothing.
inline std::string headroom_refusal(const Arguments& arguments, const RunOptions& options = {},
                                    int status = 2) {
  const RunResult run = headroom_run(arguments, options);
  EXPECT_EQ(run.status, status) << "signal " << run.signal << "\n" << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.starts_with("headroom: ")) << run.err;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  return run.err;
}

}  // namespace headroom::testing
