// Prefill, then decode, one token per pass.
#include "infer/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "configs/size.h"
#include "infer/block_cache.h"
#include "kernels/trace.h"

namespace headroom::infer {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// How the logits of the next token come about: through a cache, or from the whole sequences.
class Phases {
 public:
  virtual ~Phases() = default;
  /// Logits (B, V) after each prompt.
  virtual Tensor prefill(const Sequences& prompts) = 0;
  /// Logits, one row for each sequence that is given a token, in order.
  virtual Tensor decode(const Sequences& next) = 0;
  virtual int64_t bytes() const = 0;
  virtual int64_t passes() const = 0;
};

class CachedPhases final : public Phases {
 public:
  CachedPhases(const nn::GPT& model, const BlockTable& table, int64_t batch, const Storage& storage,
               DType dtype)
      : model_(model),
        dtype_(dtype),
        prefill_chunk_(prefill_chunk(model.config(), table.mask())),
        cache_(model.config(), table, batch, storage, model.device()) {}
  Tensor prefill(const Sequences& prompts) override { return run(prompts, prefill_chunk_); }
  Tensor decode(const Sequences& next) override { return run(next, 1); }
  int64_t bytes() const override { return cache_.bytes(); }
  int64_t passes() const override { return passes_; }

 private:
  Tensor run(const Sequences& tokens, int64_t chunk) {
    size_t longest = 0;
    for (const auto& row : tokens) {
      longest = std::max(longest, row.size());
    }
    passes_ += (static_cast<int64_t>(longest) + chunk - 1) / chunk;
    LastRows last(tokens);
    feed(model_, cache_, tokens, chunk, dtype_, last.keeper());
    return last.logits(model_);
  }

  const nn::GPT& model_;
  DType dtype_;
  int64_t prefill_chunk_;
  BlockCache cache_;
  int64_t passes_ = 0;
};

class RecomputedPhases final : public Phases {
 public:
  RecomputedPhases(const nn::GPT& model, kernels::AttentionMask mask, DType dtype)
      : model_(model), mask_(mask), dtype_(dtype) {}
  Tensor prefill(const Sequences& prompts) override {
    sequences_ = prompts;
    return run(sequences_);
  }
  Tensor decode(const Sequences& next) override {
    Sequences going_on;  // what has ended is left out
    for (size_t b = 0; b < next.size(); ++b) {
      if (!next[b].empty()) {
        sequences_[b].insert(sequences_[b].end(), next[b].begin(), next[b].end());
        going_on.push_back(sequences_[b]);
      }
    }
    return run(going_on);
  }
  int64_t bytes() const override { return 0; }
  int64_t passes() const override { return passes_; }

 private:
  Tensor run(const Sequences& tokens) {
    ++passes_;
    LastRows last(tokens);
    feed_whole(model_, tokens, mask_, dtype_, last.keeper());
    return last.logits(model_);
  }

  const nn::GPT& model_;
  kernels::AttentionMask mask_;
  DType dtype_;
  Sequences sequences_;
  int64_t passes_ = 0;
};

/// Chooses the next token of every row that goes on; logits (N, V) hold one row for each. Returns
/// what the model is to be given next: nothing for rows that have ended.
Sequences choose_all(const Tensor& logits, int64_t index, const GenerateOptions& options,
                     const Sequences& given, Generated& result, const OnToken& on_token) {
  Sequences next(given.size());
  const int64_t allowed = options.vocabulary == 0 ? logits.dim(1) : options.vocabulary;
  const Tensor host = logits.to(kCpu);
  int64_t n = 0;
  for (size_t row = 0; row < given.size(); ++row) {
    if (given[row].empty()) {
      continue;
    }
    const auto id = static_cast<int64_t>(row);
    const Choice choice = [&] {
      const kernels::Kernel kernel("sample");
      const Tensor one = host.rows(n, n + 1).reshape({host.dim(1)}).rows(0, allowed);
      return choose(one, options.sampling, id, index);
    }();
    ++n;
    result.tokens[row].push_back(choice.token);
    result.log_probs[row].push_back(choice.log_prob);
    const kernels::Kernel output("output");
    if (on_token(id, choice.token)) {
      next[row] = {choice.token};
    }
  }
  return next;
}

int64_t count_tokens(const Sequences& tokens) {
  int64_t sum = 0;
  for (const auto& row : tokens) {
    sum += static_cast<int64_t>(row.size());
  }
  return sum;
}

}  // namespace

GenerationPlan plan_generation(const configs::ModelConfig& model,
                               const std::vector<int64_t>& prompt_lengths,
                               const GenerateOptions& options) {
  check_options(options.sampling);
  check_cache_spec(options.cache, model);
  check_input(options.tokens >= 0, "[generate] --tokens is {}, but must be at least 0",
              options.tokens);
  const int64_t longest =
      prompt_lengths.empty() ? 0 : *std::max_element(prompt_lengths.begin(), prompt_lengths.end());
  GenerationPlan plan{
      .mask = options.cache.mask, .slots = 0, .cache_bytes = 0, .cache_formula = {}, .note = {}};
  if (options.tokens == 0 || prompt_lengths.empty()) {
    return plan;
  }
  check_input(options.tokens <= std::numeric_limits<int32_t>::max() - longest,
              "[generate] --tokens is {}; a prompt of {} tokens and the new ones may be {} at most",
              options.tokens, longest, std::numeric_limits<int32_t>::max());
  const int64_t total = longest + options.tokens;
  if (total > model.block_size) {
    check_input(model.position == configs::Position::rope,
                "[generate] a prompt of {} tokens and {} new ones pass model.block_size {}, where "
                "learned positions end: shorten the prompt or lower --tokens",
                longest, options.tokens, model.block_size);
    const bool all_local =
        configs::local_layers(model) == model.n_layer && model.window <= model.block_size;
    if (plan.mask.window == 0 && !all_local) {
      plan.mask = {.window = model.block_size, .sinks = kDefaultSinks};
      plan.note = fmt::format(
          "{} tokens pass block_size {}: from there on each token sees the last {} and the first "
          "{}{}",
          total, model.block_size, plan.mask.window, plan.mask.sinks,
          configs::local_layers(model) > 0 ? " in the layers without a window of their own" : "");
    }
  }
  if (!options.cache.recompute) {
    const BlockTable table(plan.mask, total);
    const auto batch = static_cast<int64_t>(prompt_lengths.size());
    const configs::KVTypes types = options.cache.types(options.dtype);
    plan.slots = table.slots();
    plan.cache_bytes = cache_bytes(model, table, batch, types);
    plan.cache_formula = cache_formula(model, table, batch, types);
  }
  return plan;
}

Generated generate(const nn::GPT& model, const Sequences& prompts, const GenerateOptions& options,
                   const OnToken& on_token) {
  std::vector<int64_t> lengths;
  for (size_t row = 0; row < prompts.size(); ++row) {
    check(!prompts[row].empty(),
          "[generate] prompt {} is empty: a model needs a token to start from", row);
    lengths.push_back(static_cast<int64_t>(prompts[row].size()));
  }
  check(options.vocabulary >= 0 && options.vocabulary <= model.vocab_size(),
        "[generate] {} ids to choose from: the model has {}", options.vocabulary,
        model.vocab_size());
  const GenerationPlan plan = plan_generation(model.config(), lengths, options);
  Generated result{Sequences(prompts.size()), std::vector<std::vector<double>>(prompts.size()), {}};
  if (options.tokens == 0 || prompts.empty()) {
    return result;
  }
  std::unique_ptr<Phases> phases;
  if (options.cache.recompute) {
    phases = std::make_unique<RecomputedPhases>(model, plan.mask, options.dtype);
  } else {
    const int64_t total = *std::max_element(lengths.begin(), lengths.end()) + options.tokens;
    phases = std::make_unique<CachedPhases>(model, BlockTable(plan.mask, total),
                                            static_cast<int64_t>(prompts.size()),
                                            options.cache.storage(options.dtype), options.dtype);
  }

  GenerateStats& stats = result.stats;
  auto start = std::chrono::steady_clock::now();
  Tensor logits;
  {
    const kernels::Phase prefill("prefill");
    logits = phases->prefill(prompts);
  }
  stats.prefill_tokens = count_tokens(prompts);
  stats.prefill_seconds = seconds_since(start);

  start = std::chrono::steady_clock::now();
  Sequences next = choose_all(logits, 0, options, prompts, result, on_token);
  stats.tape_nodes = autograd::live_nodes();
  for (int64_t index = 1; index < options.tokens && count_tokens(next) > 0; ++index) {
    const kernels::Phase step("decode step");
    stats.decode_tokens += count_tokens(next);
    logits = phases->decode(next);
    next = choose_all(logits, index, options, next, result, on_token);
    stats.tape_nodes = std::max(stats.tape_nodes, autograd::live_nodes());
  }
  stats.decode_seconds = seconds_since(start);
  stats.passes = phases->passes();
  stats.cache_bytes_held = phases->bytes();
  return result;
}

}  // namespace headroom::infer
