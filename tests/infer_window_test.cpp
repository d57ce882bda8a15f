// Windows and sinks: what each token sees, at which positions, through the ring, for every way of
// filling it (KVC-05, KVC-06, KVC-09), against a second model that keeps exactly those tokens.
#include "infer/block_cache.h"
#include "infer_reference_gpt.h"

namespace headroom::testing {
namespace {

using infer::BlockCache;
using infer::BlockTable;
using kernels::AttentionMask;
using Chunks = std::vector<int64_t>;

std::vector<double> row(const std::vector<double>& logits, int64_t position) {
  return {logits.begin() + position * kVocab, logits.begin() + (position + 1) * kVocab};
}

/// KVC-06: 4 sinks and a window of 28 for 300 tokens; the sinks keep positions 0 to 3 and the
/// window goes on from there, in both rope styles, with and without shared KV heads.
TEST(SinksAndWindow, EqualAttentionOverTheKeptTokensAtConsecutivePositions) {
  for (const auto style : {configs::RopeStyle::half, configs::RopeStyle::interleaved}) {
    for (const int64_t n_kv_head : {8, 2}) {
      auto config = small_config(n_kv_head, 32);
      config.rope_style = style;
      const AttentionMask mask{28, 4};
      const auto model = small_model(config, DType::f64);
      const auto ids = tokens(301);
      ReferenceGPT oracle(*model, mask), everything(*model);
      BlockCache cache(config, BlockTable(mask, 301), 1, DType::f64);
      const auto whole = whole_logits(*model, ids, mask);
      for (int64_t step = 0; step < 301; ++step) {
        const int32_t id = ids[static_cast<size_t>(step)];
        const auto expected = oracle.step(id);
        const auto full = everything.step(id);
        const auto logits = cached_logits(*model, cache, {{id}}, {1})[0];
        ASSERT_LE(error(logits, expected), 1e-10) << "step " << step;
        ASSERT_LE(error(row(whole, step), expected), 1e-10) << "step " << step;
        if (step < 32) {  // nothing has been dropped yet
          ASSERT_LE(error(logits, full), 1e-10) << "step " << step;
        } else {
          ASSERT_GT(error(logits, full), 1e-6) << "step " << step;
        }
      }
    }
  }
}

/// KVC-06: prompts around the sizes that matter, given at once; then one token at a time.
TEST(SinksAndWindow, TakePromptsOfAnyLength) {
  const auto config = small_config(2, 32);
  const AttentionMask mask{28, 4};
  const auto model = small_model(config, DType::f64);
  const auto ids = tokens(301);
  const auto whole = whole_logits(*model, ids, mask);
  for (const int64_t prompt : {1, 3, 4, 27, 28, 29, 32, 33, 64}) {
    BlockCache cache(config, BlockTable(mask, 301), 1, DType::f64);
    const auto logits = cached_logits(*model, cache, {ids}, {prompt, 1})[0];
    EXPECT_LE(error(logits, whole), 1e-12) << prompt;
  }
}

/// KVC-05: W counts the token itself; whichever way the ring is filled, each query sees min(i + 1,
/// W) keys.
TEST(Window, SeesExactlyItsKeysHoweverItIsFilled) {
  const auto config = small_config(4, 64);
  const auto model = small_model(config, DType::f64);
  const auto ids = tokens(40);
  for (const int64_t window : {1, 2, 8, 39, 40, 100}) {
    ReferenceGPT oracle(*model, {window, 0});
    std::vector<double> expected;
    for (const int32_t id : ids) {
      const auto logits = oracle.step(id);
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
    for (const Chunks& chunks :
         std::vector<Chunks>{{40}, {1}, {7, 1}, {8, 1}, {9, 1}, {16, 1}, {17, 1}, {5, 3, 16, 2}}) {
      BlockCache cache(config, BlockTable({window, 0}, 40, 40), 1, DType::f64);
      EXPECT_LE(error(cached_logits(*model, cache, {ids}, chunks)[0], expected), 1e-10)
          << "window " << window << ", chunks of " << chunks[0];
    }
    const double change = error(whole_logits(*model, ids), expected);
    EXPECT_TRUE(window >= 40 ? change < 1e-10 : change > 1e-6) << window;
  }
}

/// KVC-09: prompts around and above the window, in any chunks, and 20 tokens after them; long
/// enough for every block of the ring to be used again.
TEST(Window, DoesNotOverwriteWhatAPromptStillNeeds) {
  const auto config = small_config(2, 64);
  const auto model = small_model(config, DType::f64);
  for (const int64_t sinks : {0, 4}) {
    for (const int64_t prompt : {15, 16, 17, 31, 33, 100, 400}) {
      const AttentionMask mask{16, sinks};
      const auto ids = tokens(prompt + 20, static_cast<uint64_t>(prompt));
      const auto expected = whole_logits(*model, ids, mask);
      for (const int64_t chunk : {int64_t{1}, int64_t{8}, int64_t{16}, prompt}) {
        const BlockTable table(mask, prompt + 20, chunk);
        BlockCache cache(config, table, 1, DType::f64);
        Chunks chunks(static_cast<size_t>(prompt / chunk), chunk);
        if (prompt % chunk > 0) {
          chunks.push_back(prompt % chunk);
        }
        chunks.push_back(1);
        EXPECT_LE(error(cached_logits(*model, cache, {ids}, chunks)[0], expected), 1e-12)
            << "prompt " << prompt << ", chunk " << chunk;
      }
    }
  }
}

TEST(Window, WorksInRaggedBatchesAndInF32) {
  const AttentionMask mask{20, 3};
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const int64_t n_kv_head : {8, 1}) {
      const auto config = small_config(n_kv_head, 32);
      const auto model = small_model(config, dtype);
      const infer::Sequences ids = {tokens(260, 1), tokens(2, 2), tokens(70, 3)};
      for (const int64_t chunk : {1, 5, 64}) {
        BlockCache cache(config, BlockTable(mask, 260, chunk == 64 ? 1 : chunk), 3, dtype);
        const auto logits = cached_logits(*model, cache, ids, {chunk});
        for (size_t b = 0; b < ids.size(); ++b) {
          EXPECT_LE(error(logits[b], whole_logits(*model, ids[b], mask)), bound(dtype))
              << "sequence " << b << ", chunk " << chunk;
        }
      }
    }
  }
}

/// Without a window the same second model is the oracle of the whole: KVC-03's pairing of heads and
/// KVC-04's positions, through the cache.
TEST(ReferenceModel, AgreesWithTheCachedOne) {
  for (const int64_t n_kv_head : {8, 4, 2, 1}) {
    const auto config = small_config(n_kv_head, 64);
    const auto model = small_model(config, DType::f64);
    ReferenceGPT oracle(*model);
    BlockCache cache(config, BlockTable({}, 70), 1, DType::f64);
    for (const int32_t id : tokens(70)) {
      ASSERT_LE(error(cached_logits(*model, cache, {{id}}, {1})[0], oracle.step(id)), 1e-10);
    }
  }
}

}  // namespace
}  // namespace headroom::testing
