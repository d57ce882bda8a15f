// Guessing ahead, judging, and taking back what was refused.
#include "infer/speculate.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "kernels/trace.h"
#include "tensor/rng.h"

namespace headroom::infer {

namespace {

struct Row {
  std::vector<int32_t> text;  // prompt and what was generated
  int64_t wanted = 0;         // tokens still to come; 0: the row has ended
  std::vector<int32_t> guesses;
  std::vector<std::vector<double>> guessed_from;  // the draft's probabilities of each
};

class Speculation {
 public:
  Speculation(const nn::GPT& draft, Decoder& model, const Sequences& prompts,
              const GenerateOptions& options, const OnToken& on_token, Generated& result)
      : options_(options),
        on_token_(on_token),
        result_(result),
        model_(model),
        draft_(start_decoder(draft, prompts, options)) {
    for (const auto& prompt : prompts) {
      rows_.push_back({prompt, options.tokens, {}, {}});
    }
  }

  bool going_on() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.wanted > 0; });
  }

  /// The first token of each row, from the model alone.
  void begin(const Tensor& logits) {
    const Tensor host = logits.to(kCpu);
    for (size_t r = 0; r < rows_.size(); ++r) {
      take(r, choose_from(host, static_cast<int64_t>(r), r));
    }
  }

  void round() {
    guess();
    Sequences given(rows_.size());
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].wanted > 0) {
        given[r] = {rows_[r].text.back()};
        given[r].insert(given[r].end(), rows_[r].guesses.begin(), rows_[r].guesses.end());
      }
    }
    result_.stats.decode_tokens += count_tokens(given);
    const Tensor logits = model_.feed(given, options_.draft_tokens + 1).to(kCpu);
    int64_t n = 0;
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (!given[r].empty()) {
        judge_row(r, logits, n);
        n += std::ssize(given[r]);
        forget(r);
      }
    }
  }

  const Decoder& draft() const { return *draft_; }

 private:
  int64_t index_of(size_t r) const { return std::ssize(result_.tokens[r]); }

  double uniform(const char* what, size_t r, int64_t index) const {
    return RandomStream(options_.sampling.seed, what, static_cast<uint64_t>(r),
                        static_cast<uint64_t>(index))
        .uniform(0);
  }

  Choice choose_from(const Tensor& logits, int64_t n, size_t r) {
    ++result_.stats.logit_rows_used;
    return choose(logits_of(logits, n, options_), options_.sampling, static_cast<int64_t>(r),
                  index_of(r));
  }

  /// Lets the draft continue every row by up to draft_tokens tokens: one fewer than are wanted, for
  /// the model always adds one.
  void guess() {
    const kernels::Phase phase("draft");
    for (Row& row : rows_) {
      row.guesses.clear();
      row.guessed_from.clear();
    }
    for (int64_t i = 0; i < options_.draft_tokens; ++i) {
      Sequences given(rows_.size());
      for (size_t r = 0; r < rows_.size(); ++r) {
        const Row& row = rows_[r];
        if (i + 1 < row.wanted) {
          const int64_t known = draft_->length(static_cast<int64_t>(r));
          given[r].assign(row.text.begin() + std::min(known, std::ssize(row.text)), row.text.end());
          given[r].insert(given[r].end(),
                          row.guesses.empty() ? row.guesses.end() : row.guesses.end() - 1,
                          row.guesses.end());
        }
      }
      if (count_tokens(given) == 0) {
        return;
      }
      const Tensor logits = draft_->feed(given).to(kCpu);
      int64_t n = 0;
      for (size_t r = 0; r < rows_.size(); ++r) {
        if (!given[r].empty()) {
          Row& row = rows_[r];
          const int64_t index = index_of(r) + i;
          row.guessed_from.push_back(probabilities(
              logits_of(logits, n++, options_), options_.sampling, static_cast<int64_t>(r), index));
          row.guesses.push_back(draw(row.guessed_from.back(), uniform("draft", r, index)));
        }
      }
    }
  }

  /// Rows n, n + 1 .. of the logits follow the row's last token and its guesses.
  void judge_row(size_t r, const Tensor& logits, int64_t n) {
    const std::vector<int32_t> guesses = rows_[r].guesses;
    ++result_.stats.judged;
    result_.stats.drafted += std::ssize(guesses);
    for (size_t i = 0; i < guesses.size(); ++i, ++n) {
      const int64_t index = index_of(r);
      const Tensor here = logits_of(logits, n, options_);
      const Judgement verdict =
          judge(probabilities(here, options_.sampling, static_cast<int64_t>(r), index),
                rows_[r].guessed_from[i], guesses[i], uniform("judge", r, index),
                uniform("instead", r, index));
      ++result_.stats.logit_rows_used;
      result_.stats.accepted += verdict.accepted ? 1 : 0;
      const double log_prob = log_probabilities(here, static_cast<int64_t>(r),
                                                index)[static_cast<size_t>(verdict.token)];
      take(r, {verdict.token, log_prob});
      if (!verdict.accepted || rows_[r].wanted == 0) {
        return;
      }
    }
    take(r, choose_from(logits, n, r));  // all were right: the model adds one of its own
  }

  void take(size_t r, const Choice& choice) {
    Row& row = rows_[r];
    row.text.push_back(choice.token);
    result_.tokens[r].push_back(choice.token);
    result_.log_probs[r].push_back(choice.log_prob);
    const kernels::Kernel output("output");
    row.wanted = on_token_(static_cast<int64_t>(r), choice.token) ? row.wanted - 1 : 0;
  }

  /// Takes back what both were given beyond the row's text. Its last token is still to be given.
  void forget(size_t r) {
    const int64_t kept = std::ssize(rows_[r].text) - 1;
    const auto sequence = static_cast<int64_t>(r);
    for (Decoder* decoder : {&model_, draft_.get()}) {
      if (decoder->length(sequence) > kept) {
        decoder->truncate(sequence, kept);
      }
    }
  }

  const GenerateOptions& options_;
  const OnToken& on_token_;
  Generated& result_;
  Decoder& model_;
  std::unique_ptr<Decoder> draft_;
  std::vector<Row> rows_;
};

}  // namespace

int32_t draw(std::span<const double> weights, double at) {
  double left = at * std::accumulate(weights.begin(), weights.end(), 0.0);
  int32_t last = 0;  // rounding may use up the weight of the last one
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) {
      last = static_cast<int32_t>(i);
      left -= weights[i];
      if (left < 0) {
        break;
      }
    }
  }
  return last;
}

Judgement judge(std::span<const double> model, std::span<const double> draft, int32_t token,
                double accept_at, double draw_at) {
  const auto t = static_cast<size_t>(token);
  if (accept_at * draft[t] < model[t]) {
    return {true, token};
  }
  std::vector<double> instead;
  for (size_t i = 0; i < model.size(); ++i) {
    instead.push_back(std::max(0.0, model[i] - draft[i]));
  }
  return {false, draw(instead, draw_at)};
}

Generated speculate(const nn::GPT& model, const nn::GPT& draft, const Sequences& prompts,
                    const GenerateOptions& options, const OnToken& on_token) {
  check_input(options.draft_tokens >= 1, "[generate] --draft-tokens is {}, but must be at least 1",
              options.draft_tokens);
  check(options.vocabulary > 0 || model.vocab_size() == draft.vocab_size(),
        "[generate] a draft of {} ids for a model of {}", draft.vocab_size(), model.vocab_size());
  Generated result{Sequences(prompts.size()), std::vector<std::vector<double>>(prompts.size()), {}};
  const std::unique_ptr<Decoder> decoder = start_decoder(model, prompts, options);
  if (decoder == nullptr) {
    return result;
  }
  GenerateStats& stats = result.stats;
  Speculation speculation(draft, *decoder, prompts, options, on_token, result);
  const Tensor logits = prefill(*decoder, prompts, options, stats);
  const auto start = std::chrono::steady_clock::now();
  speculation.begin(logits);
  while (speculation.going_on()) {
    const kernels::Phase step("decode step");
    speculation.round();
    stats.tape_nodes = std::max(stats.tape_nodes, autograd::live_nodes());
  }
  stats.decode_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  finish_stats(*decoder, stats);
  stats.draft_work = speculation.draft().work();
  return result;
}

}  // namespace headroom::infer
