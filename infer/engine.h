// Generation: prompts in, tokens out. It knows token ids, not text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/cache_spec.h"
#include "infer/decoder.h"
#include "infer/prompt_cache.h"
#include "infer/sampler.h"

namespace headroom::infer {

struct GenerateOptions {
  int64_t tokens = 200;  // new ones per prompt, at most
  SamplingOptions sampling;
  CacheSpec cache;
  DType dtype = DType::f32;  // of activations and cache: f32 or bf16; f64 for a model in f64
  int64_t vocabulary = 0;    // ids below it may be chosen: the tokenizer's size, where the model
                             // has rows to spare; 0: all
  int64_t beams = 1;         // infer/beam.h: hypotheses of each prompt
  double length_penalty = 1;
  int64_t draft_tokens = 0;  // infer/speculate.h: tokens that a draft model guesses at a time
  const PromptCacheFile* prompt_cache = nullptr;  // gives prompts what it has of them; not owned
  /// Told of the cache when it holds the prompts and nothing else. Not without a cache.
  std::function<void(BlockCache& cache)> on_prompts = {};
};

/// How one batch of prompts will be run.
struct GenerationPlan {
  kernels::AttentionMask mask;
  int64_t slots = 0;           // per sequence; 0 without a cache
  int64_t cache_bytes = 0;     // by the formula: infer::cache_bytes()
  std::string cache_formula;   // with its factors, where sequences share nothing
  int64_t separate_bytes = 0;  // what it comes to then
  std::string note;            // what the user should be told; empty: nothing
  DecoderRoom room;            // `batch` sequences: beams times prompts
};

/// Sinks kept beside the window that a rope model gets past block_size (arXiv 2309.17453).
inline constexpr int64_t kDefaultSinks = 4;

/// The plan for prompts of these lengths. A rope model that will pass block_size gets a window of
/// block_size with kDefaultSinks sinks, unless the options name a window, and a note about it. That
/// changes nothing for the tokens before the first key is dropped. Throws InputError for a learned
/// position table that is too short, and for options without meaning.
GenerationPlan plan_generation(const configs::ModelConfig& model,
                               const std::vector<int64_t>& prompt_lengths,
                               const GenerateOptions& options);

/// Told of every new token as it is chosen, row by row within a step; returns whether the row goes
/// on. The token that ends a row is the last one it gets.
using OnToken = std::function<bool(int64_t row, int32_t token)>;

struct GenerateStats {
  int64_t prefill_tokens = 0, decode_tokens = 0;  // given to the model
  int64_t loaded_tokens = 0;                      // of prompts, from a file: not given to it
  double prefill_seconds = 0, decode_seconds = 0;
  Work work;
  int64_t logit_rows_used = 0;        // rows of logits from which a token was chosen or judged
  int64_t cache_bytes_held = 0;       // by the cache's own count
  int64_t cache_bytes_most = 0;       // in blocks that sequences held, shared ones once
  int64_t tape_nodes = 0;             // the most alive after any step: 0
  Work draft_work;                    // of a draft model
  int64_t drafted = 0, accepted = 0;  // tokens of a draft model
  int64_t judged = 0;                 // times that a row's draft was judged by the model
};

struct Generated {
  Sequences tokens;                            // new ones, per prompt
  std::vector<std::vector<double>> log_probs;  // of each, as the model gave it at temperature 1
  GenerateStats stats;
};

/// Continues every prompt by up to options.tokens tokens. Prompts must not be empty. Row r draws
/// from its own random stream, and a row that has ended is given nothing more.
Generated generate(const nn::GPT& model, const Sequences& prompts, const GenerateOptions& options,
                   const OnToken& on_token);

/// What generate(), beam_search() and speculate() have in common: prompts and options checked, and
/// a decoder with room for them; nullptr when there is nothing to do.
std::unique_ptr<Decoder> start_decoder(const nn::GPT& model, const Sequences& prompts,
                                       const GenerateOptions& options);
/// Gives the prompts, in `rows`, to the decoder, but for what a file has of them, and counts that.
Tensor prefill(Decoder& decoder, const Sequences& rows, const GenerateOptions& options,
               GenerateStats& stats);
/// What is known when the last token has been chosen.
void finish_stats(Decoder& decoder, GenerateStats& stats);
/// The logits (V) of row n of (N, V), of the ids that may be chosen.
Tensor logits_of(const Tensor& logits, int64_t n, const GenerateOptions& options);

}  // namespace headroom::infer
