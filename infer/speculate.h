// Speculative decoding: a small model guesses some tokens ahead, the model judges them in one pass,
// and what comes out is distributed as if the model had drawn every token itself (Leviathan et al.
// 2022, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318).
#pragma once

#include <span>

#include "infer/engine.h"

namespace headroom::infer {

/// One guess judged: `model` and `draft` hold the probabilities of all tokens, from which `token`
/// was drawn by the draft's. It is accepted with probability min(1, model / draft); if it isn't, a
/// token is drawn from the positive part of model - draft instead. Both use uniform numbers in
/// [0, 1). The result is distributed as `model`.
struct Judgement {
  bool accepted = false;
  int32_t token = 0;
};
Judgement judge(std::span<const double> model, std::span<const double> draft, int32_t token,
                double accept_at, double draw_at);

/// The token at which the share `at` of all weight is passed.
int32_t draw(std::span<const double> weights, double at);

/// generate() with options.draft_tokens guesses at a time by `draft`, sampled with the same
/// options. The draft gives probabilities to the ids that the model may choose: it needs the same
/// tokenizer, and where options.vocabulary is 0 as many ids. Greedy tokens are those of generate(),
/// but for logits as close as rounding; sampled ones have the same distribution, though not the
/// same draws.
Generated speculate(const nn::GPT& model, const nn::GPT& draft, const Sequences& prompts,
                    const GenerateOptions& options, const OnToken& on_token);

}  // namespace headroom::infer
