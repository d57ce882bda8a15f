// What a draft model comes to: the share of its guesses that a model accepts, and how much faster
// text is made with it than without.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "infer/engine.h"

namespace headroom::experiments {

struct Drafting {
  int64_t guessed = 0, accepted = 0;  // tokens of the draft
  int64_t passes = 0;                 // of the model, judging
  int64_t tokens = 0;                 // made each way
  int64_t unlike = 0;                 // of those, unlike the ones made without the draft
  /// Of each prompt; rates are of their medians, since one of them is enough to meet another
  /// program.
  std::vector<double> plain_seconds, drafted_seconds;
  std::vector<double> alone_seconds;  // the draft making as many tokens by itself

  double acceptance() const;       // of the guesses
  double tokens_per_pass() const;  // accepted ones, and the model's own of each pass
  double speed_up() const;
  /// A pass of the draft in passes of the model: Leviathan's c.
  double cost() const;
  /// tokens_per_pass / (guesses at a time * cost + 1): what a draft gains where judging several
  /// tokens takes as long as one (Leviathan et al. 2022, arXiv 2211.17192, theorem 3.8).
  double expected_speed_up(int64_t guesses) const;
};

/// What one draft came to with one way of choosing tokens.
struct DraftResult {
  std::string draft;
  double temperature = 0;
  Drafting drafting;
};

/// Continues every prompt by options.tokens tokens, one prompt at a time and without the draft, by
/// the draft alone, and with it: options.draft_tokens guesses at a time. Calls `prompt_done` after
/// each.
Drafting measure_drafting(const nn::GPT& model, const nn::GPT& draft,
                          const infer::Sequences& prompts, const infer::GenerateOptions& options,
                          const std::function<void()>& prompt_done);

}  // namespace headroom::experiments
