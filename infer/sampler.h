// Choosing the next token from its logits.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace headroom::infer {

/// What narrows the choice. The steps are applied in this order, each to what the one before left,
/// and none ever leaves less than one token:
///   1. temperature  logits are divided by it
///   2. top_k        the k largest logits stay; among equal ones the lowest ids
///   3. top_p        the fewest of the most likely tokens whose probabilities reach p stay (nucleus
///                   sampling, Holtzman et al. 2020, arXiv 1904.09751)
///   4. min_p        tokens at least p times as likely as the most likely one stay (Nguyen et al.
///                   2024, arXiv 2407.01082)
/// Then one of the rest is drawn.
struct SamplingOptions {
  double temperature = 0.8;  // 0: always the largest logit, the lowest id among equal ones
  int64_t top_k = 0;         // 0, or as many as there are tokens: all
  double top_p = 1.0;        // 1: all
  double min_p = 0.0;        // 0: all
  uint64_t seed = 1;
};

/// Throws InputError naming the option whose value has no meaning, and its range.
void check_options(const SamplingOptions& options);

struct Choice {
  int32_t token = 0;
  /// Natural logarithm of the probability that the model itself gave the token: at temperature 1,
  /// of all tokens.
  double log_prob = 0;
};

/// The token that follows logits (V), f32 or f64. The draw is number `index` of the
/// stream of (seed, row): what other rows there are, and what they drew, changes nothing. Throws
/// Error naming a logit that is NaN or +inf.
Choice choose(const Tensor& logits, const SamplingOptions& options, int64_t row, int64_t index);

/// The probability (V) with which choose() draws each token; at temperature 0 the likeliest has all
/// of it. `row` and `index` only name what is wrong with the logits.
std::vector<double> probabilities(const Tensor& logits, const SamplingOptions& options, int64_t row,
                                  int64_t index);
/// Natural logarithm of the probability that the model gave each token (V), at temperature 1.
std::vector<double> log_probabilities(const Tensor& logits, int64_t row, int64_t index);

}  // namespace headroom::infer
