// Narrowing the choice and drawing from what is left.
#include "infer/sampler.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/backend.h"
#include "tensor/check.h"
#include "tensor/rng.h"

namespace headroom::infer {

namespace {

/// The largest logit. Throws, naming what is wrong with them, when there is none.
kernels::Largest largest(const Tensor& logits, int64_t row, int64_t index) {
  check(logits.numel() > 0, "[sampler] no logits to choose from");
  const kernels::Largest largest = kernels::backend(logits.device()).largest(logits);
  if (largest.index >= 0) {
    return largest;
  }
  const std::vector<double> values = to_doubles(logits);
  for (size_t i = 0; i < values.size(); ++i) {
    check(values[i] < std::numeric_limits<double>::infinity(),
          "[sampler] the logit of token {} is {} at new token {} of sequence {}", i, values[i],
          index, row);
  }
  throw Error(
      fmt::format("[sampler] every logit is -inf at new token {} of sequence {}", index, row));
}

/// The probabilities up to a common factor, 0 for tokens that are not to be chosen. The largest
/// logit is taken away before the division: 0 / tiny is 0, the rest go to -inf.
Tensor weights_of(const Tensor& logits, const kernels::Largest& best,
                  const SamplingOptions& options) {
  kernels::Backend& backend = kernels::backend(logits.device());
  Tensor weights = Tensor::empty(logits.shape(), logits.dtype(), logits.device());
  backend.exp_weights(logits, best.value, options.temperature, weights);
  backend.keep_likeliest(
      logits, {.top_k = options.top_k, .top_p = options.top_p, .min_p = options.min_p}, weights);
  return weights;
}

}  // namespace

void check_options(const SamplingOptions& options) {
  check_input(
      std::isfinite(options.temperature) && options.temperature >= 0,
      "[sampler] --temperature is {}, but must be a finite number of at least 0 (0: greedy)",
      options.temperature);
  check_input(options.top_k >= 0, "[sampler] --top-k is {}, but must be at least 0 (0: all tokens)",
              options.top_k);
  check_input(options.top_p >= 0 && options.top_p <= 1,
              "[sampler] --top-p is {}, but must be from 0 to 1 (1: all tokens)", options.top_p);
  check_input(options.min_p >= 0 && options.min_p <= 1,
              "[sampler] --min-p is {}, but must be from 0 to 1 (0: all tokens)", options.min_p);
}

std::vector<double> probabilities(const Tensor& logits, const SamplingOptions& options, int64_t row,
                                  int64_t index) {
  const kernels::Largest best = largest(logits, row, index);
  std::vector<double> result;
  if (options.temperature == 0) {
    result.resize(static_cast<size_t>(logits.numel()), 0.0);
    result[static_cast<size_t>(best.index)] = 1;
    return result;
  }
  result = to_doubles(weights_of(logits, best, options));
  const double total = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& weight : result) {
    weight /= total;
  }
  return result;
}

std::vector<double> log_probabilities(const Tensor& logits, int64_t row, int64_t index) {
  const double log_sum = largest(logits, row, index).log_sum;
  std::vector<double> result = to_doubles(logits);
  for (double& logit : result) {
    logit -= log_sum;
  }
  return result;
}

Choice choose(const Tensor& logits, const SamplingOptions& options, int64_t row, int64_t index) {
  const kernels::Largest best = largest(logits, row, index);
  int64_t token = best.index;
  if (options.temperature > 0) {
    const RandomStream stream(options.seed, "sampling", static_cast<uint64_t>(row),
                              static_cast<uint64_t>(index));
    const int32_t drawn = kernels::backend(logits.device())
                              .draw(weights_of(logits, best, options), stream.uniform(0));
    token = drawn >= 0 ? drawn : token;
  }
  const double logit =
      token == best.index ? best.value : to_doubles(logits.rows(token, token + 1)).front();
  return {static_cast<int32_t>(token), logit - best.log_sum};
}

}  // namespace headroom::infer
