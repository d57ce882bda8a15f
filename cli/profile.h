// --profile: where a command's time went, as a table and as a file for chrome://tracing or
// Perfetto.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "kernels/trace.h"

namespace headroom::cli {

/// Runs `work` under a Trace and returns what it returns. However it ends, by an exception too, the
/// table goes to stderr unless `quiet`, and the trace into `file`, under the command's name; only
/// what throws before its first phase leaves nothing. Throws InputError before `work` begins when
/// the file's folder does not exist.
int profiled(const std::filesystem::path& file, const std::string& command, bool quiet,
             const std::function<int()>& work);

/// For every phase that is in no other: how often it ran, and a row per kernel with its calls and
/// its time per occurrence, a column for each phase directly inside it, and its share of the
/// phase's time. The last rows are the time outside kernels, and the sum.
std::string profile_table(const kernels::PhaseTotal& totals);

/// The Trace Event Format's JSON: one complete event ("X") per phase and kernel, in microseconds.
void write_chrome_trace(const kernels::Trace& trace, const std::string& command,
                        const std::filesystem::path& file);

}  // namespace headroom::cli
