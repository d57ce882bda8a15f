// Extending hypotheses, choosing among them, and moving the cache along.
#include "infer/beam.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/trace.h"

namespace headroom::infer {

namespace {

struct Hypothesis {
  std::vector<int32_t> tokens;
  std::vector<double> log_probs;
  double sum = 0;
  int64_t row = 0;  // of the decoder: where its tokens but the last are
};

struct Complete {
  Hypothesis hypothesis;
  double score = 0;
};

/// A hypothesis and the token to extend it by.
struct Extension {
  size_t parent = 0;
  int32_t token = 0;
  double log_prob = 0;
  double sum = 0;
};

bool more_likely(const Extension& a, const Extension& b) {
  if (a.sum != b.sum) {
    return a.sum > b.sum;
  }
  return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
}

/// The hypotheses of one prompt.
class PromptBeams {
 public:
  PromptBeams(int64_t prompt, const GenerateOptions& options)
      : prompt_(prompt), options_(options), live_(1) {
    live_[0].row = prompt * options.beams;
  }

  bool done() const { return done_; }
  const std::vector<Hypothesis>& live() const { return live_; }

  /// Extends every live hypothesis; logits (N, V) have theirs from row `n` on, in order.
  void extend(const Tensor& logits, int64_t n, const IsComplete& is_complete) {
    std::vector<Hypothesis> next;
    const std::vector<Extension> candidates = best_extensions(logits, n);
    for (size_t rank = 0; rank < candidates.size() && wanted(next.size()); ++rank) {
      const Extension& c = candidates[rank];
      Hypothesis longer = live_[c.parent];
      longer.tokens.push_back(c.token);
      longer.log_probs.push_back(c.log_prob);
      longer.sum = c.sum;
      if (!is_complete(prompt_, longer.tokens)) {
        next.push_back(std::move(longer));
      } else if (wanted(rank)) {
        keep(std::move(longer));
      }
    }
    live_ = std::move(next);
    done_ = live_.empty() ||
            (!wanted(complete_.size()) && complete_.back().score >= score(live_.front()));
  }

  /// Where the live ones' tokens will be, and what each is to be given there.
  void place(std::vector<int64_t>& parents, Sequences& next) {
    for (size_t i = 0; i < live_.size() && !done_; ++i) {
      const auto row = static_cast<size_t>(prompt_ * options_.beams) + i;
      parents[row] = live_[i].row;
      live_[i].row = static_cast<int64_t>(row);
      next[row] = {live_[i].tokens.back()};
    }
  }

  /// The best of all, when no more tokens will come.
  Complete best() {
    for (size_t i = 0; i < live_.size() && !done_; ++i) {
      keep(live_[i]);
    }
    return complete_.front();
  }

 private:
  bool wanted(size_t have) const { return static_cast<int64_t>(have) < options_.beams; }

  double score(const Hypothesis& h) const {
    return h.sum / std::pow(static_cast<double>(h.tokens.size()), options_.length_penalty);
  }

  void keep(Hypothesis hypothesis) {
    const double own = score(hypothesis);
    const auto worse = std::find_if(complete_.begin(), complete_.end(),
                                    [own](const Complete& c) { return c.score < own; });
    complete_.insert(worse, {std::move(hypothesis), own});
    if (static_cast<int64_t>(complete_.size()) > options_.beams) {
      complete_.pop_back();
    }
  }

  std::vector<Extension> best_extensions(const Tensor& logits, int64_t n) const {
    const kernels::Kernel kernel("sample");
    std::vector<Extension> all;
    for (size_t i = 0; i < live_.size(); ++i) {
      const auto row = n + static_cast<int64_t>(i);
      const std::vector<double> log_probs = log_probabilities(
          logits_of(logits, row, options_), live_[i].row, std::ssize(live_[i].tokens));
      for (size_t token = 0; token < log_probs.size(); ++token) {
        all.push_back(
            {i, static_cast<int32_t>(token), log_probs[token], live_[i].sum + log_probs[token]});
      }
    }
    const auto most = std::min<std::ptrdiff_t>(2 * options_.beams, std::ssize(all));
    std::partial_sort(all.begin(), all.begin() + most, all.end(), more_likely);
    all.resize(static_cast<size_t>(most));
    return all;
  }

  int64_t prompt_;
  const GenerateOptions& options_;
  std::vector<Hypothesis> live_;    // likeliest first
  std::vector<Complete> complete_;  // best first
  bool done_ = false;
};

/// One more token for every hypothesis. Returns what the decoder is to be given next, after moving
/// its sequences to where the hypotheses are now.
Sequences step(const Tensor& logits, std::vector<PromptBeams>& all, Decoder& decoder,
               const GenerateOptions& options, const IsComplete& is_complete,
               GenerateStats& stats) {
  const Tensor host = logits.to(kCpu);
  const auto rows = static_cast<size_t>(options.beams) * all.size();
  std::vector<int64_t> parents(rows, -1);
  Sequences next(rows);
  int64_t n = 0;
  for (PromptBeams& beams : all) {
    if (!beams.done()) {
      const int64_t live = std::ssize(beams.live());
      beams.extend(host, n, is_complete);
      beams.place(parents, next);
      n += live;
    }
  }
  stats.logit_rows_used += n;
  decoder.reorder(parents);
  return next;
}

}  // namespace

Beams beam_search(const nn::GPT& model, const Sequences& prompts, const GenerateOptions& options,
                  const IsComplete& is_complete, const std::function<bool()>& go_on) {
  check_input(options.beams >= 1, "[generate] --beams is {}, but must be at least 1",
              options.beams);
  Beams result{{Sequences(prompts.size()), std::vector<std::vector<double>>(prompts.size()), {}},
               std::vector<double>(prompts.size(), 0.0)};
  const std::unique_ptr<Decoder> decoder = start_decoder(model, prompts, options);
  if (decoder == nullptr) {
    return result;
  }
  GenerateStats& stats = result.best.stats;
  Sequences next(prompts.size() * static_cast<size_t>(options.beams));
  std::vector<PromptBeams> all;
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    next[prompt * static_cast<size_t>(options.beams)] = prompts[prompt];
    all.emplace_back(static_cast<int64_t>(prompt), options);
  }
  Tensor logits = prefill(*decoder, next, options, stats);
  const auto start = std::chrono::steady_clock::now();
  next = step(logits, all, *decoder, options, is_complete, stats);
  for (int64_t index = 1; index < options.tokens && count_tokens(next) > 0 && go_on(); ++index) {
    const kernels::Phase phase("decode step");
    stats.decode_tokens += count_tokens(next);
    logits = decoder->feed(next);
    next = step(logits, all, *decoder, options, is_complete, stats);
  }
  stats.decode_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  stats.tape_nodes = autograd::live_nodes();
  finish_stats(*decoder, stats);
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    Complete best = all[prompt].best();
    result.best.tokens[prompt] = std::move(best.hypothesis.tokens);
    result.best.log_probs[prompt] = std::move(best.hypothesis.log_probs);
    result.scores[prompt] = best.score;
  }
  return result;
}

}  // namespace headroom::infer
