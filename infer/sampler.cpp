// Narrowing the choice and drawing from what is left.
#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "tensor/check.h"
#include "tensor/rng.h"

namespace headroom::infer {

namespace {

/// A token that may still be chosen; its weight is its probability up to a common factor.
struct Candidate {
  int32_t token;
  double logit;
  double weight;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

double element(const Tensor& x, int64_t i) {
  return x.dtype() == DType::f64 ? x.data<double>()[i] : x.data<float>()[i];
}

/// The largest logit. Throws, naming what is wrong with them, when there is none.
kernels::Largest largest(const Tensor& logits, int64_t row, int64_t index) {
  check(logits.numel() > 0, "[sampler] no logits to choose from");
  const kernels::Largest largest = kernels::backend(kCpu).largest(logits);
  for (int64_t i = 0; largest.index < 0 && i < logits.numel(); ++i) {
    const double logit = element(logits, i);
    check(logit < std::numeric_limits<double>::infinity(),
          "[sampler] the logit of token {} is {} at new token {} of sequence {}", i, logit, index,
          row);
  }
  check(largest.index >= 0, "[sampler] every logit is -inf at new token {} of sequence {}", index,
        row);
  return largest;
}

/// The probabilities up to a common factor. The largest logit is taken away before the division: 0
/// / tiny is 0, the rest go to -inf.
Tensor weights_of(const Tensor& logits, const kernels::Largest& best, double temperature) {
  Tensor weights = Tensor::empty(logits.shape(), logits.dtype());
  kernels::backend(kCpu).exp_weights(logits, best.value, temperature, weights);
  return weights;
}

double total_weight(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.weight; });
}

void keep_top_k(std::vector<Candidate>& candidates, int64_t k) {
  if (k > 0 && static_cast<size_t>(k) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + k - 1, candidates.end(), likelier);
    candidates.resize(static_cast<size_t>(k));
  }
}

void keep_top_p(std::vector<Candidate>& candidates, double p) {
  if (p >= 1) {
    return;
  }
  const double wanted = p * total_weight(candidates);
  std::sort(candidates.begin(), candidates.end(), likelier);
  double sum = 0;
  size_t kept = 0;
  do {
    sum += candidates[kept++].weight;
  } while (sum < wanted && kept < candidates.size());
  candidates.resize(kept);
}

void keep_min_p(std::vector<Candidate>& candidates, double p) {
  std::erase_if(candidates, [p](const Candidate& c) { return c.weight < p; });
}

/// What is left of the tokens, in the order of ids, so that a step that removed nothing leaves no
/// trace in what is drawn.
std::vector<Candidate> candidates(const Tensor& logits, const Tensor& weights,
                                  const SamplingOptions& options) {
  std::vector<Candidate> left;
  left.reserve(static_cast<size_t>(logits.numel()));
  for (int64_t i = 0; i < logits.numel(); ++i) {
    left.push_back({static_cast<int32_t>(i), element(logits, i), element(weights, i)});
  }
  keep_top_k(left, options.top_k);
  keep_top_p(left, options.top_p);
  keep_min_p(left, options.min_p);
  if (options.top_k > 0 || options.top_p < 1) {
    std::sort(left.begin(), left.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
  return left;
}

/// The token at which the share `at` of all weight is passed; none if rounding has used up the
/// last.
std::optional<int64_t> draw_at(const Tensor& logits, const Tensor& weights,
                               const SamplingOptions& options, double at) {
  const std::vector<Candidate> all = candidates(logits, weights, options);
  double left = at * total_weight(all);
  for (const Candidate& c : all) {
    left -= c.weight;
    if (left < 0) {
      return c.token;
    }
  }
  return std::nullopt;
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
  std::vector<double> result(static_cast<size_t>(logits.numel()), 0.0);
  if (options.temperature == 0) {
    result[static_cast<size_t>(best.index)] = 1;
    return result;
  }
  const std::vector<Candidate> left =
      candidates(logits, weights_of(logits, best, options.temperature), options);
  const double total = total_weight(left);
  for (const Candidate& c : left) {
    result[static_cast<size_t>(c.token)] = c.weight / total;
  }
  return result;
}

std::vector<double> log_probabilities(const Tensor& logits, int64_t row, int64_t index) {
  const double log_sum = largest(logits, row, index).log_sum;
  std::vector<double> result;
  for (int64_t i = 0; i < logits.numel(); ++i) {
    result.push_back(element(logits, i) - log_sum);
  }
  return result;
}

Choice choose(const Tensor& logits, const SamplingOptions& options, int64_t row, int64_t index) {
  const kernels::Largest best = largest(logits, row, index);
  int64_t token = best.index;
  if (options.temperature > 0) {
    const RandomStream stream(options.seed, "sampling", static_cast<uint64_t>(row),
                              static_cast<uint64_t>(index));
    token =
        draw_at(logits, weights_of(logits, best, options.temperature), options, stream.uniform(0))
            .value_or(token);
  }
  return {static_cast<int32_t>(token), element(logits, token) - best.log_sum};
}

}  // namespace headroom::infer
