// The proof holds for caches that are right and fails for caches that are wrong.
#include "infer/verify.h"

#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::CacheCheck;
using infer::CacheUnderTest;

CacheUnderTest block_cache(const std::string& text) {
  const auto spec = infer::parse_cache_spec(text);
  return {text, spec.mask, infer::block_cache_maker(spec)};
}

CacheUnderTest faulty(ConcatenatingCache::Fault fault) {
  return {"faulty", {}, [fault](const nn::GPT& model, int64_t batch, int64_t, int64_t) {
            return std::make_unique<ConcatenatingCache>(model.config(), batch,
                                                        kernels::AttentionMask{}, fault);
          }};
}

const infer::Sequences kRagged = {tokens(70, 1), tokens(36, 2), tokens(5, 3)};

TEST(VerifyCache, HoldsForEveryCacheAndNumberOfKVHeads) {
  for (const int64_t n_kv_head : {8, 4, 2, 1}) {
    for (const auto position : {configs::Position::rope, configs::Position::learned}) {
      auto config = small_config(n_kv_head, 256);
      config.position = position;
      const auto model = small_model(config);
      const auto wide = infer::to_f64(*model);
      for (const std::string cache : {"static", "static,window=16,sinks=4"}) {
        const auto checks = infer::verify_cache(*model, *wide, block_cache(cache), kRagged);
        EXPECT_EQ(checks.size(), cache == "static" ? 8U : 10U);
        for (const CacheCheck& check : checks) {
          EXPECT_TRUE(check.ok) << check.cache << " in chunks of " << check.chunk << ", "
                                << name_of(check.dtype) << ": " << check.max_abs_diff << " of "
                                << check.max_abs_logit;
          EXPECT_EQ(check.batch, 3);
          EXPECT_LE(check.max_abs_diff, check.bound * check.max_abs_logit);
          EXPECT_GT(check.max_abs_logit, 1.0);
        }
      }
    }
  }
}

TEST(VerifyCache, PublishedSettingHolds) {
  const auto config = small_config(2, 64);
  const auto model = small_model(config);
  const auto wide = infer::to_f64(*model);
  const auto checks =
      infer::verify_published_setting(*model, *wide, block_cache("static"), tokens(48));
  ASSERT_EQ(checks.size(), 2U);
  EXPECT_EQ(checks[0].chunk, "16, then 1");
  EXPECT_EQ(checks[0].dtype, DType::f32);
  EXPECT_EQ(checks[1].dtype, DType::f64);
  EXPECT_TRUE(checks[0].ok && checks[1].ok);
}

/// The naive cache is right; its two faults are caught in both types, in every chunking that shows
/// them. One token at a time, keys in the wrong order give the right sums, since each carries its
/// position: that is why several chunkings are tried.
TEST(VerifyCache, CatchesWrongCaches) {
  using Fault = ConcatenatingCache::Fault;
  const auto config = small_config(2, 128);
  const auto model = small_model(config);
  const auto wide = infer::to_f64(*model);
  for (const Fault fault : {Fault::none, Fault::position_stays_zero, Fault::newest_first}) {
    for (const CacheCheck& check : infer::verify_cache(*model, *wide, faulty(fault), kRagged)) {
      const bool shows = fault != Fault::none && check.chunk != "all" &&
                         (fault != Fault::newest_first || check.chunk != "1");
      EXPECT_EQ(check.ok, !shows) << check.chunk;
      if (shows) {
        EXPECT_GT(check.max_abs_diff, 1e-3 * check.max_abs_logit);
        EXPECT_LT(check.greedy_agreement, 1.0);
      }
    }
  }
}

TEST(VerifyCache, CatchesAWindowThatIsOffByOne) {
  const auto config = small_config(2, 128);
  const auto model = small_model(config);
  const auto wide = infer::to_f64(*model);
  CacheUnderTest cache = block_cache("static,window=17");
  cache.mask.window = 16;
  for (const CacheCheck& check : infer::verify_cache(*model, *wide, cache, kRagged)) {
    EXPECT_FALSE(check.ok) << check.chunk;
  }
}

/// A tie is not a disagreement: where all rows of the head are equal, every position ties.
TEST(VerifyCache, CountsTies) {
  const auto config = small_config(2, 128);
  const auto model = small_model(config);
  const nn::Parameter head = model->parameters().back();
  ASSERT_EQ(head.name, "lm_head.weight");
  Tensor rows = head.value.value();
  for (int64_t token = 1; token < kVocab; ++token) {
    rows.rows(token, token + 1).copy_from(rows.rows(0, 1).clone());
  }
  nn::Variable(head.value).changed();
  const auto wide = infer::to_f64(*model);
  for (const CacheCheck& check :
       infer::verify_cache(*model, *wide, block_cache("static"), kRagged)) {
    EXPECT_EQ(check.ties, 70 + 36 + 5);
    EXPECT_EQ(check.greedy_agreement, 1.0);
  }
}

TEST(VerifyCache, RefusesNone) {
  EXPECT_THROW(infer::block_cache_maker(infer::parse_cache_spec("none")), InputError);
}

TEST(ToF64, HoldsTheSameWeights) {
  const auto model = small_model(small_config(2));
  const auto wide = infer::to_f64(*model);
  EXPECT_EQ(wide->dtype(), DType::f64);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_EQ(doubles(wide->parameters()[i].value.value()),
              doubles(model->parameters()[i].value.value()));
  }
  EXPECT_LE(error(whole_logits(*model, tokens(30)), whole_logits(*wide, tokens(30))), 1e-5);
}

TEST(SyntheticTokens, AreInTheVocabularyAndDifferByRow) {
  const auto a = infer::synthetic_tokens(500, 7, 1, 0), b = infer::synthetic_tokens(500, 7, 1, 1);
  EXPECT_NE(a, b);
  for (const int32_t token : a) {
    EXPECT_TRUE(token >= 0 && token < 7);
  }
}

}  // namespace
}  // namespace headroom::testing
