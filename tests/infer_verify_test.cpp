// The proof holds for caches that are right and fails for caches that are wrong.
#include "infer/verify.h"

#include "infer/block_cache.h"
#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::CacheCheck;
using infer::CacheUnderTest;

CacheUnderTest block_cache(const std::string& text) {
  return infer::cache_under_test(infer::parse_cache_spec(text));
}

/// Turns keys, and tells nobody.
class HalfTurnedCache : public nn::KVCache {
 public:
  HalfTurnedCache(const nn::GPT& model, int64_t batch, int64_t tokens)
      : inner_(model.config(), infer::BlockTable({}, tokens), batch, model.dtype()) {}
  int64_t batch() const override { return inner_.batch(); }
  int64_t position(int64_t b) const override { return inner_.position(b); }
  kernels::AttentionMask mask(int64_t layer) const override { return inner_.mask(layer); }
  kernels::KVView append(int64_t layer, const Tensor& k, const Tensor& v,
                         const Tensor& counts) override {
    Tensor turned = Tensor::empty(k.shape(), k.dtype());
    kernels::backend(kCpu).hadamard(k, turned);
    return inner_.append(layer, turned, v, counts);
  }

 private:
  infer::BlockCache inner_;
};

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
  for (const Fault fault : {Fault::none, Fault::position_stays_zero, Fault::newest_first,
                            Fault::mask_top_left, Fault::wrong_axis}) {
    for (const CacheCheck& check : infer::verify_cache(*model, *wide, faulty(fault), kRagged)) {
      const bool shows = fault != Fault::none &&
                         (check.chunk != "all" || fault == Fault::wrong_axis) &&
                         (fault != Fault::newest_first || check.chunk != "1");
      EXPECT_EQ(check.ok, !shows) << check.chunk;
      if (shows) {
        EXPECT_GT(check.max_abs_diff, 1e-3 * check.max_abs_logit);
        EXPECT_LT(check.greedy_agreement, 1.0);
      }
    }
  }
}

/// Whatever a cache rounds, it rounds the same however the tokens arrive; and it stays within the
/// tolerance of its type, but not within that of another one.
TEST(VerifyCache, HoldsForCachesThatRound) {
  for (const int64_t n_kv_head : {8, 2, 1}) {
    const auto model = small_model(small_config(n_kv_head, 256));
    const auto wide = infer::to_f64(*model);
    for (const std::string cache : {"static,dtype=f16", "static,dtype=bf16", "static,dtype=int8",
                                    "static,dtype=int4", "static,k=int8,v=int4,rotate=hadamard",
                                    "static,window=16,sinks=4,dtype=int8,place=file"}) {
      const auto checks = infer::verify_cache(*model, *wide, block_cache(cache), kRagged);
      for (const CacheCheck& check : checks) {
        EXPECT_TRUE(check.ok) << cache << " in chunks of " << check.chunk << ", "
                              << name_of(check.dtype) << ": " << check.max_abs_diff << " of "
                              << check.max_abs_logit;
        const bool f64 = check.dtype == DType::f64;
        EXPECT_EQ(check.against, f64 ? infer::Against::at_once : infer::Against::uncached);
        EXPECT_TRUE(f64 || check.max_abs_diff > 1e-5 * check.max_abs_logit) << cache;
        EXPECT_TRUE(f64 || check.kl_nats > 0) << cache;
      }
    }
  }
}

/// The stores that only move what they are given change nothing.
TEST(VerifyCache, HoldsExactlyForCachesThatDoNotRound) {
  const auto model = small_model(small_config(2, 256));
  const auto wide = infer::to_f64(*model);
  for (const std::string cache : {"static,place=file", "static,place=host", "static,dtype=f32",
                                  "static,rotate=hadamard", "static,window=9,place=file"}) {
    const auto under_test = block_cache(cache);
    for (const CacheCheck& check : infer::verify_cache(*model, *wide, under_test, kRagged)) {
      // A cache told to keep f32 rounds the keys of a model in float64.
      const bool rounds = cache == "static,dtype=f32" && check.dtype == DType::f64;
      EXPECT_EQ(check.ok, !rounds) << cache << ", " << check.chunk << ", " << name_of(check.dtype);
    }
  }
}

TEST(VerifyCache, CatchesAKeyRotatedWithoutItsQuery) {
  const auto model = small_model(small_config(2, 256));
  const auto wide = infer::to_f64(*model);
  CacheUnderTest cache = block_cache("static,dtype=bf16");
  cache.make = [](const nn::GPT& m, int64_t batch, int64_t tokens, int64_t) {
    return std::make_unique<HalfTurnedCache>(m, batch, tokens);
  };
  for (const CacheCheck& check : infer::verify_cache(*model, *wide, cache, kRagged)) {
    EXPECT_EQ(check.ok, check.dtype == DType::f64) << check.max_abs_diff;
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
