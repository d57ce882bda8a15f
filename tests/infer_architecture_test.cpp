// Models whose layers differ in what they keep: a latent instead of keys and values (KVC-17), and
// windows in some layers. Cached equals uncached, and bytes are those of the formula.
#include "infer/block_cache.h"
#include "infer/cache_size.h"
#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::BlockCache;
using infer::BlockTable;
using kernels::AttentionMask;

/// Rotated 6, latent 10, head 8: all different.
configs::ModelConfig latent_config() {
  configs::ModelConfig model = small_config(8);
  model.attention = configs::AttentionKind::mla;
  model.given_kv_rank = 10;
  model.given_rope_head_dim = 6;
  return model;
}

configs::ModelConfig windowed(configs::ModelConfig model, const std::string& pattern,
                              int64_t window, int64_t sinks) {
  model.n_layer = 3;
  model.window = window;
  model.window_pattern = pattern;
  model.sinks = sinks;
  return model;
}

struct Architecture {
  const char* name;
  configs::ModelConfig config;
};

std::vector<Architecture> architectures() {
  configs::ModelConfig learned_sink = small_config(), learned_latent = latent_config(),
                       everything = windowed(latent_config(), "LG", 70, 2);
  learned_sink.sink = configs::SinkKind::learned;
  learned_latent.position = configs::Position::learned;
  learned_latent.given_rope_head_dim = 0;
  learned_latent.block_size = 300;
  everything.sink = configs::SinkKind::learned;
  everything.qk_norm = true;
  return {{"latent", latent_config()},
          {"latent, learned positions", learned_latent},
          {"learned sinks", learned_sink},
          {"windows in all layers", windowed(small_config(), "L", 5, 0)},
          {"windows and sinks in two of three", windowed(small_config(), "LLG", 40, 3)},
          {"the first layer sees all", windowed(small_config(), "GL", 33, 0)},
          {"all at once", everything}};
}

/// Sinks that are zero would test nothing.
std::unique_ptr<nn::GPT> model_of(const configs::ModelConfig& config, DType dtype) {
  auto model = small_model(config, dtype);
  for (const nn::Parameter& p : model->parameters()) {
    if (p.name.ends_with("sinks")) {
      Tensor value = p.value.value();
      fill_normal(value, RandomStream(7, p.name), 1.0);
      nn::Variable(p.value).changed();
    }
  }
  return model;
}

TEST(Architectures, CachedEqualsUncachedForEveryChunking) {
  for (const Architecture& each : architectures()) {
    SCOPED_TRACE(each.name);
    for (const DType dtype : {DType::f64, DType::f32}) {
      const auto model = model_of(each.config, dtype);
      const infer::Sequences ids = {tokens(150), tokens(1, 1), tokens(97, 2)};  // ragged
      for (const int64_t chunk : {150, 1, 3, 16}) {
        BlockCache cache(each.config, BlockTable({}, 150, chunk), 3, dtype);
        ConcatenatingCache plain(each.config, 3);
        const auto logits = cached_logits(*model, cache, ids, {chunk});
        const auto expected = cached_logits(*model, plain, ids, {chunk});
        for (size_t b = 0; b < ids.size(); ++b) {
          const auto whole = whole_logits(*model, ids[b]);
          EXPECT_LE(error(logits[b], whole), bound(dtype)) << b << " in chunks of " << chunk;
          EXPECT_LE(error(expected[b], whole), bound(dtype)) << b << " in chunks of " << chunk;
        }
      }
    }
  }
}

TEST(Architectures, UnderTheWindowOfACacheEqualTheUncachedPassUnderIt) {
  const AttentionMask mask{20, 2};
  for (const Architecture& each : architectures()) {
    SCOPED_TRACE(each.name);
    const auto model = model_of(each.config, DType::f64);
    const auto ids = tokens(200);
    const auto whole = whole_logits(*model, ids, mask);
    for (const std::vector<int64_t>& chunks : {std::vector<int64_t>{64}, {33, 1}}) {
      BlockCache cache(each.config, BlockTable(mask, 200), 1, DType::f64);
      EXPECT_LE(error(cached_logits(*model, cache, {ids}, chunks)[0], whole), 1e-12);
    }
    const bool narrow =
        each.config.window > 0 && each.config.window <= 20 && each.config.window_pattern == "L";
    EXPECT_EQ(whole == whole_logits(*model, ids), narrow);  // its own window is narrower
  }
}

TEST(Architectures, AreVerifiedUnderCachesThatRoundToo) {
  const infer::Sequences ragged = {tokens(70, 1), tokens(36, 2), tokens(5, 3)};
  for (const Architecture& each : architectures()) {
    const auto model = model_of(each.config, DType::f32);
    const auto wide = infer::to_f64(*model);
    for (const std::string spec : {"static", "static,window=16,sinks=4", "static,dtype=int8",
                                   "static,window=16,dtype=bf16,place=file"}) {
      const auto checks = infer::verify_cache(
          *model, *wide, infer::cache_under_test(infer::parse_cache_spec(spec)), ragged);
      EXPECT_FALSE(checks.empty());
      for (const infer::CacheCheck& check : checks) {
        // The tolerance of 8 bits is that of trained models: these random ones are rougher.
        const bool near = spec == "static,dtype=int8"
                              ? check.max_abs_diff <= 0.15 * check.max_abs_logit
                              : check.ok;
        EXPECT_TRUE(near) << each.name << ", " << check.cache << " in chunks of " << check.chunk
                          << ": " << check.max_abs_diff << " of " << check.max_abs_logit;
      }
    }
  }
}

// KVC-17
TEST(Architectures, DifferingTypesOfKeysAndValuesAreRefusedForALatent) {
  for (const char* spec : {"static,k=int8,v=int4", "static,k=int8", "static,rotate=hadamard"}) {
    EXPECT_THROW(infer::check_cache_spec(infer::parse_cache_spec(spec), latent_config()),
                 InputError);
    infer::check_cache_spec(infer::parse_cache_spec(spec), small_config());
  }
  infer::check_cache_spec(infer::parse_cache_spec("static,dtype=int8"), latent_config());
}

// KVC-17
TEST(Architectures, ALatentTakesItsWidthAndTheRotatedKeyAndNothingElse) {
  const configs::ModelConfig config = latent_config();
  const BlockCache cache(config, BlockTable({}, 100), 3);
  EXPECT_EQ(cache.bytes(), int64_t{2} * (10 + 6) * 4 * 100 * 3);
  EXPECT_EQ(infer::cache_bytes(config, BlockTable({}, 100), 3, configs::KVTypes()), cache.bytes());
}

TEST(Architectures, LayersWithAWindowHoldTheirBlocksOnly) {
  // A window of 40 touches two blocks of 64 at most, and 3 sinks pin another: 192 slots of 640.
  const configs::ModelConfig config = windowed(small_config(), "LLG", 40, 3);
  const BlockTable table({}, 640);
  const BlockCache cache(config, table, 2);
  const int64_t token = 2 * 2 * 8 * 4;  // K and V of 2 heads of 8 in f32
  EXPECT_EQ(cache.bytes(), token * 2 * (2 * 192 + 640));
  EXPECT_EQ(infer::cache_bytes(config, table, 2, configs::KVTypes()), cache.bytes());
  const std::string formula = infer::cache_formula(config, table, 2, configs::KVTypes());
  EXPECT_NE(formula.find("n_layer 2 * n_kv_head 2 * head_dim 8 * tokens 192"), std::string::npos)
      << formula;
  EXPECT_NE(formula.find("n_layer 1 * n_kv_head 2 * head_dim 8 * tokens 640"), std::string::npos)
      << formula;
  // A cache's own window holds in every layer that has no narrower one.
  const BlockTable narrow({.window = 100, .sinks = 0}, 640);
  const BlockCache windows(config, narrow, 2);
  EXPECT_EQ(windows.bytes(), token * 2 * (2 * 192 + 3 * 64));
  EXPECT_EQ(windows.mask(0).window, 40);
  EXPECT_EQ(windows.mask(2).window, 100);
}

TEST(Architectures, GreedyTextIsThatWithoutACache) {
  for (const Architecture& each : architectures()) {
    SCOPED_TRACE(each.name);
    const auto model = model_of(each.config, DType::f64);
    const infer::Sequences prompts = {tokens(9), tokens(70, 1)};
    const auto cached = run(*model, prompts, greedy(80));
    EXPECT_EQ(cached.tokens, run(*model, prompts, greedy(80, "none")).tokens);
    EXPECT_EQ(cached.stats.cache_bytes_held,
              infer::plan_generation(each.config, {9, 70}, greedy(80)).cache_bytes);
  }
}

}  // namespace
}  // namespace headroom::testing
