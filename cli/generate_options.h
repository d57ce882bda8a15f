// The options of headroom generate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/common.h"
#include "tensor/dtype.h"

namespace headroom::cli {

struct GenerateArguments {
  static constexpr int64_t kNotGiven = -1, kDefaultTokens = 200;

  std::string run, prompt_file, cache = "static", draft, save_cache, load_cache;
  std::vector<std::string> prompts, stops;
  int64_t tokens = kNotGiven, top_k = 0, seed = 1, samples = 1;
  int64_t beams = 0;  // 0: none, tokens are drawn
  int64_t draft_tokens = 4;
  double temperature = 0.8, top_p = 1, min_p = 0, length_penalty = 1;
  std::optional<DType> weights;  // absent: the type of the activations
  bool stats = false;
};

/// What --weights calls a type.
std::string_view name_of_weights(DType type);

/// Registers them, with --precision and what --help ends with.
void add_generate_options(CLI::App& app, Common& common, GenerateArguments& to);

}  // namespace headroom::cli
