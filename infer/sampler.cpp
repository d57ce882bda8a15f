// Narrowing the choice and drawing from what is left.
#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

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

/// The index of the largest logit.
size_t largest(std::span<const double> logits, int64_t row, int64_t index) {
  check(!logits.empty(), "[sampler] no logits to choose from");
  for (size_t i = 0; i < logits.size(); ++i) {
    check(!std::isnan(logits[i]) && logits[i] != std::numeric_limits<double>::infinity(),
          "[sampler] the logit of token {} is {} at new token {} of sequence {}", i, logits[i],
          index, row);
  }
  const auto best =
      static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  check(std::isfinite(logits[best]), "[sampler] every logit is -inf at new token {} of sequence {}",
        index, row);
  return best;
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

Choice choose(std::span<const double> logits, const SamplingOptions& options, int64_t row,
              int64_t index) {
  const size_t best = largest(logits, row, index);
  const double top = logits[best];
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp(logit - top);
  }
  const auto choice = [&](size_t token) {
    return Choice{static_cast<int32_t>(token), logits[token] - top - std::log(sum)};
  };
  if (options.temperature == 0) {
    return choice(best);
  }
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    // The largest logit is taken away before the division: 0 / tiny is 0, and the rest go to -inf.
    candidates.push_back(
        {static_cast<int32_t>(i), logits[i], std::exp((logits[i] - top) / options.temperature)});
  }
  keep_top_k(candidates, options.top_k);
  keep_top_p(candidates, options.top_p);
  keep_min_p(candidates, options.min_p);
  // In the order of ids, so that a step that removed nothing leaves no trace in what is drawn.
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });

  const RandomStream stream(options.seed, "sampling", static_cast<uint64_t>(row),
                            static_cast<uint64_t>(index));
  double left = stream.uniform(0) * total_weight(candidates);
  for (const Candidate& c : candidates) {
    left -= c.weight;
    if (left < 0) {
      return choice(static_cast<size_t>(c.token));
    }
  }
  return choice(best);  // rounding used the last candidate up
}

}  // namespace headroom::infer
