// headroom verify-cache: proves on a run, or on an untrained model of a config, that the cached
// logits are the uncached ones.
#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/commands.h"
#include "configs/count.h"
#include "configs/memory.h"
#include "configs/size.h"
#include "infer/block_table.h"
#include "infer/verify.h"
#include "train/device.h"
#include "train/run_folder.h"

namespace headroom::cli {
namespace {

constexpr int64_t kTokens = 96;  // more than a block of positions
constexpr uint64_t kSeed = 1;
constexpr std::array kDefaults = {"static",
                                  "static,window=16,sinks=4",
                                  "static,place=file",
                                  "static,dtype=f16",
                                  "static,dtype=bf16",
                                  "static,dtype=int8",
                                  "static,dtype=int4",
                                  "static,window=16,sinks=4,dtype=int8"};
/// A latent can't be turned, nor its halves stored apart (infer::check_cache_spec).
constexpr std::array kDefaultsOfHeads = {"static,k=int8,v=int4,rotate=hadamard"};

struct VerifyCacheOptions {
  std::string argument;
  std::vector<std::string> caches;
};

/// Tokens enough that a window's blocks are used again in chunks of 1, 3, 16 and 64, and no more
/// than learned positions have.
int64_t tokens_for(const configs::ModelConfig& model, kernels::AttentionMask mask) {
  constexpr int64_t kFar = std::numeric_limits<int32_t>::max();
  const int64_t wanted =
      mask.window == 0 ? kTokens : infer::BlockTable(mask, kFar, 16).slots() + 32;
  return model.position == configs::Position::learned ? std::min(wanted, model.block_size) : wanted;
}

/// Lengths of the ragged batch for a cache.
std::array<int64_t, 3> lengths_for(const configs::ModelConfig& model, kernels::AttentionMask mask) {
  const int64_t n = tokens_for(model, mask);
  return {n, n / 2 + 1, std::min<int64_t>(n, 5)};
}

/// Refuses a cache whose window asks for more tokens than fit. The passes in float64 are the widest
/// ones; the logits are compared as doubles, and at most five sets of them are held at once.
void require_memory(const configs::ModelConfig& model, int64_t vocabulary, int64_t weights,
                    const infer::CacheSpec& spec, Device device) {
  constexpr int64_t kDouble = sizeof(double), kSets = 5;
  const std::array<int64_t, 3> lengths = lengths_for(model, spec.mask);
  const int64_t tokens = lengths[0], batch = std::ssize(lengths);
  const configs::Count rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  configs::ModelConfig one_layer = model;  // without gradients a layer's activations don't stay
  one_layer.n_layer = 1;
  const std::vector<configs::MemoryItem> items = {
      {"weights", weights},
      {"weights in float64", (configs::Count(2) * weights).value()},
      {"cache", configs::cache_bytes(model, tokens, batch, configs::kv_types_of(DType::f64))},
      {"activations", configs::activation_bytes(one_layer, vocabulary, tokens, batch, kDouble)},
      {"logits", (rows * vocabulary * kDouble * kSets).value()}};
  const auto& [window, sinks] = spec.mask;
  const bool by_window = window >= sinks;
  configs::require_memory(
      fmt::format("verify-cache of {} with sequences of {} tokens", infer::to_string(spec), tokens),
      items,
      window == 0 ? fmt::format("lower model.n_layer (now {})", model.n_layer)
                  : fmt::format("lower {} in --cache (now {})", by_window ? "window" : "sinks",
                                by_window ? window : sinks),
      configs::available_memory(device));
}

/// The run's model, or the config's with the weights training would start from.
std::unique_ptr<nn::GPT> load_model(const VerifyCacheOptions& options,
                                    const ConfigArgument& argument, const Common& common,
                                    const std::vector<infer::CacheSpec>& specs) {
  const Device device = train::choose_device(common.device, argument.config.train);
  const configs::ModelConfig& model = argument.config.model;
  const int64_t vocabulary = find_vocabulary(argument).value_or(kUsualVocabulary);
  const int64_t weights = configs::weights_bytes(model, vocabulary);
  const std::vector<configs::MemoryItem> items = {
      {"weights", weights}, {"weights in float64", (configs::Count(2) * weights).value()}};
  configs::require_memory("verify-cache", items,
                          fmt::format("lower model.n_layer (now {})", model.n_layer),
                          configs::available_memory(device));
  for (const infer::CacheSpec& spec : specs) {
    require_memory(model, vocabulary, weights, spec, device);
  }
  use_configured_threads(common, argument.config.train.threads);
  if (!argument.run.empty()) {
    train::LoadedRun loaded = train::load_run(options.argument, common.overrides, device);
    for (const std::string& each : loaded.notes) {
      note(common, each);
    }
    return std::move(loaded.model);
  }
  const auto seed = static_cast<uint64_t>(argument.config.train.seed);
  return std::make_unique<nn::GPT>(model, vocabulary, nn::Scope{.seed = seed, .device = device});
}

std::vector<infer::CacheCheck> check_cache(const nn::GPT& model, const nn::GPT& model_f64,
                                           const infer::CacheSpec& spec) {
  const infer::CacheUnderTest cache = infer::cache_under_test(spec);
  const int64_t V = model.vocab_size();
  infer::Sequences ragged;
  for (const int64_t length : lengths_for(model.config(), spec.mask)) {
    ragged.push_back(infer::synthetic_tokens(length, V, kSeed, ragged.size()));
  }
  std::vector<infer::CacheCheck> checks = infer::verify_cache(model, model_f64, cache, ragged);
  constexpr int64_t kPublished = infer::kPublishedPrefill + infer::kPublishedDecode;
  if (model.config().position == configs::Position::rope ||
      model.config().block_size >= kPublished) {
    for (const infer::CacheCheck& check : infer::verify_published_setting(
             model, model_f64, cache, infer::synthetic_tokens(kPublished, V, kSeed, 3))) {
      checks.push_back(check);
    }
  }
  return checks;
}

std::string_view name_of(infer::Against against) {
  return against == infer::Against::uncached ? "uncached" : "at once";
}

void print_json_result(const std::vector<infer::CacheCheck>& checks, bool ok) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const infer::CacheCheck& check : checks) {
    rows.push_back({{"cache", check.cache},
                    {"chunk", check.chunk},
                    {"batch", check.batch},
                    {"dtype", name_of(check.dtype)},
                    {"against", name_of(check.against)},
                    {"max_abs_diff", check.max_abs_diff},
                    {"max_abs_logit", check.max_abs_logit},
                    {"greedy_agreement", check.greedy_agreement},
                    {"kl_nats", check.kl_nats},
                    {"ties", check.ties},
                    {"bound", check.bound},
                    {"ok", check.ok}});
  }
  print_json({{"rows", rows}, {"ok", ok}});
}

void print_table(const std::vector<infer::CacheCheck>& checks, bool ok) {
  size_t width = 5;
  for (const infer::CacheCheck& check : checks) {
    width = std::max(width, check.cache.size());
  }
  std::string text = fmt::format(
      "{:<{}}  {:<10}  batch  type  against   max |diff| / max |logit|    bound  KL (nats)   "
      "greedy  "
      "ties  ok\n",
      "cache", width, "chunk");
  for (const infer::CacheCheck& check : checks) {
    text += fmt::format(
        "{:<{}}  {:<10}  {:>5}  {:<4}  {:<8}  {:>24.2e}  {:>7.0e}  {:>9.1e}  {:>5.1f} %  {:>4}  "
        "{}\n",
        check.cache, width, check.chunk, check.batch, name_of(check.dtype), name_of(check.against),
        check.max_abs_diff / check.max_abs_logit, check.bound, check.kl_nats,
        100 * check.greedy_agreement, check.ties, check.ok ? "yes" : "NO");
  }
  for (const infer::CacheCheck& check : checks) {
    if (check.batch == 1 && check.against == infer::Against::uncached &&
        check.chunk.find(',') != std::string::npos) {
      text += fmt::format(
          "published setting (prompt of {} tokens at once, {} more one by one), {} in {}: largest "
          "difference {:.2e}\n",
          infer::kPublishedPrefill, infer::kPublishedDecode, check.cache, name_of(check.dtype),
          check.max_abs_diff);
    }
  }
  const auto failed = std::count_if(checks.begin(), checks.end(),
                                    [](const infer::CacheCheck& check) { return !check.ok; });
  text += ok ? fmt::format("all {} comparisons agree\n", checks.size())
             : fmt::format("{} of {} comparisons DISAGREE\n", failed, checks.size());
  print(text);
}

std::vector<infer::CacheSpec> specs_for(const VerifyCacheOptions& options,
                                        const configs::ModelConfig& model) {
  std::vector<std::string> texts = options.caches;
  if (texts.empty()) {
    texts.assign(kDefaults.begin(), kDefaults.end());
    if (!configs::kv_shape(model).value_in_key) {
      texts.insert(texts.end(), kDefaultsOfHeads.begin(), kDefaultsOfHeads.end());
    }
  }
  std::vector<infer::CacheSpec> specs;
  for (const std::string& text : texts) {
    specs.push_back(infer::parse_cache_spec(text));
    check_input(!specs.back().recompute,
                "--cache is none, which keeps nothing: every cache is compared with it");
    infer::check_cache_spec(specs.back(), model);
  }
  return specs;
}

int run_verify_cache(const VerifyCacheOptions& options, const Common& common) {
  const ConfigArgument argument = load_config_argument(options.argument, common);
  const std::vector<infer::CacheSpec> specs = specs_for(options, argument.config.model);
  const std::unique_ptr<nn::GPT> model = load_model(options, argument, common, specs);
  const std::unique_ptr<nn::GPT> model_f64 = infer::to_f64(*model);
  std::vector<infer::CacheCheck> checks;
  for (const infer::CacheSpec& spec : specs) {
    for (const infer::CacheCheck& check : check_cache(*model, *model_f64, spec)) {
      checks.push_back(check);
    }
  }
  const bool ok = std::all_of(checks.begin(), checks.end(),
                              [](const infer::CacheCheck& check) { return check.ok; });
  if (common.json) {
    print_json_result(checks, ok);
  } else {
    print_table(checks, ok);
  }
  return ok ? 0 : 1;
}

}  // namespace

Action add_verify_cache(CLI::App& app, Common& common) {
  auto options = std::make_shared<VerifyCacheOptions>();
  app.add_option("RUN", options->argument,
                 "a run folder, a checkpoint in one, or a config or preset (its untrained model)")
      ->required();
  add_repeated(app, "--cache", options->caches, "a cache to compare; may be repeated", "SPEC")
      ->default_str("one of every kind");
  set_footer(
      app,
      "  headroom verify-cache runs/first\n"
      "  headroom verify-cache gqa --cache static,window=64,sinks=4 --json\n\n"
      "A ragged batch of synthetic tokens goes through the cache at once and in chunks, and one\n"
      "sequence as published, in float32 and in float64 with the same weights. Float32 may differ "
      "by 1e-5\n"
      "of the largest logit, float64 by 1e-12. A cache that rounds what it stores is compared "
      "with\n"
      "its own tolerance, and in float64 with itself given everything at once. Exit status 1:\n"
      "something disagrees.");
  return [options, &common] { return run_verify_cache(*options, common); };
}

}  // namespace headroom::cli
