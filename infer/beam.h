// Beam search: the likeliest of many continuations, several of which are followed at a time.
#pragma once

#include <functional>
#include <span>

#include "infer/engine.h"

namespace headroom::infer {

/// Whether a continuation of the prompt of that number is complete; it gets nothing more.
using IsComplete = std::function<bool(int64_t prompt, std::span<const int32_t> tokens)>;

struct Beams {
  Generated best;              // of each prompt
  std::vector<double> scores;  // of these: sum of log-probabilities / tokens^length_penalty
};

/// For each prompt follows options.beams hypotheses. Of the continuations of all by one token the
/// 2 * beams likeliest are looked at, in order: a complete one among the first `beams` is kept by
/// its score, the `beams` best of them; others go on, until as many go on. A prompt is done when
/// `beams` complete ones are kept and the likeliest that goes on scores no better than the worst of
/// them; or at options.tokens tokens, when those that go on are complete. That follows
/// Hugging Face's generate() with early_stopping=False. Length penalty 0 compares sums of
/// log-probabilities; 1, means. Equal ones are taken in the order of their beams, then of their
/// tokens' ids. options.sampling is not used: nothing is drawn. One beam is greedy.
///
/// Hypotheses share the blocks of a cache up to where they part. `go_on` is asked before each step.
Beams beam_search(const nn::GPT& model, const Sequences& prompts, const GenerateOptions& options,
                  const IsComplete& is_complete, const std::function<bool()>& go_on);

}  // namespace headroom::infer
