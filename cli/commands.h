// The subcommands: one function each, in a file of its own name. It registers the command's own
// options on `app` and returns what runs the command once they are parsed. main.cpp lists them.
#pragma once

#include <functional>

#include "cli/common.h"

namespace headroom::cli {

/// Does a command's work and returns its exit status. Throws InputError for bad input (status 2)
/// and other exceptions for failures (status 1).
using Action = std::function<int()>;

Action add_train(CLI::App& app, Common& common);
Action add_sweep(CLI::App& app, Common& common);
Action add_eval(CLI::App& app, Common& common);
Action add_generate(CLI::App& app, Common& common);
Action add_plan(CLI::App& app, Common& common);
Action add_verify_cache(CLI::App& app, Common& common);
Action add_bench_train(CLI::App& app, Common& common);
Action add_bench_roofline(CLI::App& app, Common& common);
Action add_bench_latency(CLI::App& app, Common& common);
Action add_convert(CLI::App& app, Common& common);
Action add_analyze_sinks(CLI::App& app, Common& common);
Action add_analyze_window(CLI::App& app, Common& common);
Action add_analyze_low_rank(CLI::App& app, Common& common);
Action add_bench_memory(CLI::App& app, Common& common);
Action add_reproduce(CLI::App& app, Common& common);
Action add_tokenize(CLI::App& app, Common& common);
Action add_inspect(CLI::App& app, Common& common);

}  // namespace headroom::cli
