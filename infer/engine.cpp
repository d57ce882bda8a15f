// Prefill, then decode, one token per pass.
#include "infer/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "configs/size.h"
#include "infer/cache_size.h"
#include "kernels/trace.h"

namespace headroom::infer {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Chooses the next token of every row that goes on; logits (N, V) hold one row for each. Returns
/// what the model is to be given next: nothing for rows that have ended.
Sequences choose_all(const Tensor& logits, int64_t index, const GenerateOptions& options,
                     const Sequences& given, Generated& result, const OnToken& on_token) {
  Sequences next(given.size());
  int64_t n = 0;
  for (size_t row = 0; row < given.size(); ++row) {
    if (given[row].empty()) {
      continue;
    }
    const auto id = static_cast<int64_t>(row);
    const Choice choice = [&] {
      const kernels::Kernel kernel("sample");
      return choose(logits_of(logits, n, options), options.sampling, id, index);
    }();
    ++n;
    result.tokens[row].push_back(choice.token);
    result.log_probs[row].push_back(choice.log_prob);
    const kernels::Kernel output("output");
    if (on_token(id, choice.token)) {
      next[row] = {choice.token};
    }
  }
  result.stats.logit_rows_used += n;
  return next;
}

/// The mask of a text of `total` tokens, and what the user should know about it.
void plan_mask(const configs::ModelConfig& model, int64_t longest, const GenerateOptions& options,
               GenerationPlan& plan) {
  const int64_t total = longest + options.tokens;
  if (total <= model.block_size) {
    return;
  }
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
  GenerationPlan plan{.mask = options.cache.mask,
                      .slots = 0,
                      .cache_bytes = 0,
                      .cache_formula = {},
                      .separate_bytes = 0,
                      .note = {},
                      .room = {}};
  if (options.tokens == 0 || prompt_lengths.empty()) {
    return plan;
  }
  check_input(options.tokens <= std::numeric_limits<int32_t>::max() - longest,
              "[generate] --tokens is {}; a prompt of {} tokens and the new ones may be {} at most",
              options.tokens, longest, std::numeric_limits<int32_t>::max());
  plan_mask(model, longest, options, plan);
  plan.room = {.batch = std::ssize(prompt_lengths) * options.beams,
               .tokens = longest + options.tokens,
               .chunk = options.draft_tokens + 1,
               .prefixes = options.beams > 1 ? prompt_lengths : std::vector<int64_t>()};
  if (!options.cache.recompute) {
    const BlockTable table(plan.mask, plan.room.tokens, plan.room.chunk);
    plan.slots = table.slots();
    const configs::KVTypes types = options.cache.types(options.dtype);
    plan.cache_bytes = cache_bytes(model, table, plan.room.batch, types, plan.room.prefixes);
    plan.separate_bytes = cache_bytes(model, table, plan.room.batch, types);
    plan.cache_formula = cache_formula(model, table, plan.room.batch, types);
  }
  return plan;
}

std::unique_ptr<Decoder> start_decoder(const nn::GPT& model, const Sequences& prompts,
                                       const GenerateOptions& options) {
  std::vector<int64_t> lengths;
  for (size_t row = 0; row < prompts.size(); ++row) {
    check(!prompts[row].empty(),
          "[generate] prompt {} is empty: a model needs a token to start from", row);
    lengths.push_back(std::ssize(prompts[row]));
  }
  check(options.vocabulary >= 0 && options.vocabulary <= model.vocab_size(),
        "[generate] {} ids to choose from: the model has {}", options.vocabulary,
        model.vocab_size());
  const GenerationPlan plan = plan_generation(model.config(), lengths, options);
  if (options.tokens == 0 || prompts.empty()) {
    return nullptr;
  }
  return options.cache.recompute
             ? recomputing_decoder(model, plan.mask, plan.room.batch, options.dtype)
             : cached_decoder(model, plan.mask, plan.room, options.cache.storage(options.dtype),
                              options.dtype);
}

Tensor prefill(Decoder& decoder, const Sequences& rows, const GenerateOptions& options,
               GenerateStats& stats) {
  const kernels::Phase phase("prefill");
  const auto start = std::chrono::steady_clock::now();
  BlockCache* const cache = decoder.cache();
  check_input(cache != nullptr || (options.prompt_cache == nullptr && !options.on_prompts),
              "[generate] the cache \"none\" keeps nothing that could be saved or loaded");
  Sequences rest = rows;
  for (size_t row = 0; row < rows.size() && options.prompt_cache != nullptr; ++row) {
    if (!rest[row].empty()) {
      const int64_t loaded =
          options.prompt_cache->load(*cache, static_cast<int64_t>(row), rows[row]);
      rest[row].erase(rest[row].begin(), rest[row].begin() + loaded);
      stats.loaded_tokens += loaded;
    }
  }
  Tensor logits = decoder.feed(rest);
  stats.prefill_tokens = count_tokens(rest);
  stats.prefill_seconds = seconds_since(start);
  if (options.on_prompts) {
    options.on_prompts(*cache);
  }
  return logits;
}

void finish_stats(Decoder& decoder, GenerateStats& stats) {
  stats.work = decoder.work();
  if (const BlockCache* cache = decoder.cache(); cache != nullptr) {
    stats.cache_bytes_held = cache->bytes();
    stats.cache_bytes_most = cache->most_bytes_in_use();
  }
}

Tensor logits_of(const Tensor& logits, int64_t n, const GenerateOptions& options) {
  const int64_t V = logits.dim(1);
  return logits.rows(n, n + 1).reshape({V}).rows(0,
                                                 options.vocabulary == 0 ? V : options.vocabulary);
}

Generated generate(const nn::GPT& model, const Sequences& prompts, const GenerateOptions& options,
                   const OnToken& on_token) {
  Generated result{Sequences(prompts.size()), std::vector<std::vector<double>>(prompts.size()), {}};
  const std::unique_ptr<Decoder> decoder = start_decoder(model, prompts, options);
  if (decoder == nullptr) {
    return result;
  }
  GenerateStats& stats = result.stats;
  Tensor logits = prefill(*decoder, prompts, options, stats);
  const auto start = std::chrono::steady_clock::now();
  Sequences next = choose_all(logits, 0, options, prompts, result, on_token);
  stats.tape_nodes = autograd::live_nodes();
  for (int64_t index = 1; index < options.tokens && count_tokens(next) > 0; ++index) {
    const kernels::Phase step("decode step");
    stats.decode_tokens += count_tokens(next);
    logits = decoder->feed(next);
    next = choose_all(logits, index, options, next, result, on_token);
    stats.tape_nodes = std::max(stats.tape_nodes, autograd::live_nodes());
  }
  stats.decode_seconds = seconds_since(start);
  finish_stats(*decoder, stats);
  return result;
}

}  // namespace headroom::infer
