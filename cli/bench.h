// What the `bench` commands share: their argument, and how they name a model.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"

namespace headroom::cli {

/// Registers the positional CONFIG|RUN|PRESET.
void add_bench_argument(CLI::App& app, std::string& argument);
/// Registers --contexts, a list of numbers of tokens divided by commas.
void add_contexts(CLI::App& app, std::vector<int64_t>& contexts);
/// Refuses `tokens` that learned positions don't reach.
void require_positions(const configs::ModelConfig& model, int64_t tokens);
/// "gqa: 6 layers, 256 wide, 8 heads over 2 KV heads, vocabulary 65".
/// "2 threads", or "cuda:0".
std::string bench_device(Device device);
std::string bench_heading(const std::string& name, const configs::ModelConfig& model,
                          int64_t vocab_size);

}  // namespace headroom::cli
