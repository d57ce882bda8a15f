// The block table against a simulation that remembers what every slot holds; the cache's bytes,
// limits and truncation.
#include "infer/block_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "configs/size.h"
#include "infer_model.h"
#include "tensor/allocator.h"

namespace headroom::infer {
namespace {

using kernels::AttentionMask;
using testing::small_config;
using testing::small_model;
using testing::tokens;

/// What each slot holds: a position, as a cache would have written it.
class Slots {
 public:
  explicit Slots(const BlockTable& table) : table_(table) {}
  void write(int64_t first, int64_t length) {
    for (int64_t p = first; p < length; ++p) {
      const int64_t slot = table_.slot(p);
      ASSERT_GE(slot, 0);
      ASSERT_LT(slot, table_.slots());
      held_[slot] = p;
    }
  }
  /// Every key that the mask lets a query see must be in a listed block, and be itself.
  void expect_answers(int64_t first, int64_t length) const {
    const auto starts = table_.visible(first, length);
    ASSERT_TRUE(std::is_sorted(starts.begin(), starts.end()));
    ASSERT_TRUE(std::adjacent_find(starts.begin(), starts.end()) == starts.end());
    const std::set<int64_t> listed(starts.begin(), starts.end());
    const AttentionMask mask = table_.mask();
    for (int64_t q = first; q < length; ++q) {
      for (int64_t j = 0; j <= q; ++j) {
        if (mask.window == 0 || j > q - mask.window || j < mask.sinks) {
          ASSERT_TRUE(listed.contains(j / 64 * 64)) << "query " << q << ", key " << j;
          ASSERT_EQ(held_.at(table_.slot(j)), j) << "query " << q;
        }
      }
    }
  }

 private:
  const BlockTable& table_;
  std::map<int64_t, int64_t> held_;
};

TEST(BlockTable, HoldsEveryKeyThatAQuerySees) {
  for (const int64_t window : {1, 2, 8, 16, 63, 64, 65, 66, 128, 200}) {
    for (const int64_t sinks : {0, 1, 4, 64, 65}) {
      for (const int64_t chunk : {1, 3, 16, 64, 100}) {
        const BlockTable table({window, sinks}, 700, chunk);
        Slots slots(table);
        for (int64_t at = 0; at < 700; at += chunk) {
          const int64_t length = std::min<int64_t>(at + chunk, 700);
          ASSERT_TRUE(table.fits(at, length));
          slots.write(at, length);
          slots.expect_answers(at, length);
          if (HasFatalFailure()) {
            FAIL() << "window " << window << ", sinks " << sinks << ", chunk " << chunk;
          }
        }
      }
    }
  }
}

TEST(BlockTable, TheSmallestRingTakesAWholeBlockAtATime) {
  for (const int64_t window : {1, 16, 63, 64, 65, 66, 128, 200}) {
    const BlockTable table({window, 4}, 700);
    Slots slots(table);
    for (int64_t at = 0; at < 640; at += 64) {
      ASSERT_TRUE(table.fits(at, at + 64));
      slots.write(at, at + 64);
      slots.expect_answers(at, at + 64);
    }
  }
}

TEST(BlockTable, ListsOnlyBlocksThatAreSeen) {
  const BlockTable table({100, 4}, 10000);
  EXPECT_EQ(table.visible(0, 1), (std::vector<int64_t>{0}));
  EXPECT_EQ(table.visible(1000, 1001), (std::vector<int64_t>{0, 896, 960}));
  EXPECT_EQ(BlockTable({100, 0}, 10000).visible(1000, 1001), (std::vector<int64_t>{896, 960}));
  EXPECT_EQ(BlockTable({}, 10000).visible(130, 131), (std::vector<int64_t>{0, 64, 128}));
}

TEST(BlockTable, TakesNoMoreSlotsThanNeeded) {
  EXPECT_EQ(BlockTable({}, 37).slots(), 37);
  EXPECT_EQ(BlockTable({}, 1000).slots(), 1000);
  // A window of 128 touches up to 3 blocks; the sinks' block stays beside them.
  EXPECT_EQ(BlockTable({128, 4}, 100000).slots(), 4 * 64);
  EXPECT_EQ(BlockTable({128, 0}, 100000).slots(), 3 * 64);
  EXPECT_EQ(BlockTable({128, 4}, 200).slots(), 200);  // fewer than the ring would have
  EXPECT_EQ(BlockTable({128, 4}, 10).slots(), 10);
}

/// KVC-13: the formula, the cache's own count and the allocator agree to the byte.
TEST(BlockCache, TakesTheBytesOfTheFormula) {
  for (const int64_t n_kv_head : {8, 4, 2, 1}) {
    for (const BlockTable& table :
         {BlockTable({}, 10), BlockTable({}, 2000), BlockTable({128, 4}, 2000)}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
        const auto config = small_config(n_kv_head);
        const size_t before = allocator(kCpu).bytes_in_use();
        const BlockCache cache(config, table, 3, dtype);
        const auto held = static_cast<int64_t>(allocator(kCpu).bytes_in_use() - before);
        const int64_t formula = 2 * config.n_layer * n_kv_head * config.head_dim() * table.slots() *
                                3 * static_cast<int64_t>(size_of(dtype));
        EXPECT_EQ(held, formula);
        EXPECT_EQ(cache.bytes(), formula);
        EXPECT_EQ(configs::cache_bytes(config, table.slots(), 3, configs::kv_types_of(dtype)),
                  formula);
      }
    }
  }
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

const OnHidden kIgnore = [](int64_t, int64_t, const Tensor&) {};

TEST(BlockCache, RefusesWhatDoesNotFitAndStaysAsItWas) {
  const auto config = small_config(2);
  const auto model = small_model(config);
  BlockCache cache(config, BlockTable({}, 10), 2);
  feed(*model, cache, {tokens(8), tokens(3)}, 16, DType::f32, kIgnore);
  const std::string message = refusal([&] {
    feed(*model, cache, {tokens(3), tokens(1)}, 16, DType::f32, kIgnore);
  });
  EXPECT_NE(message.find("sequence 0 would have 11 tokens: made for 10"), std::string::npos)
      << message;
  EXPECT_EQ(cache.position(0), 8);
  EXPECT_EQ(cache.position(1), 3);
  const auto wide = small_model(small_config(4));
  EXPECT_NE(refusal([&] {
              BlockCache other(config, BlockTable({}, 10), 2);
              feed(*wide, other, {tokens(1), tokens(1)}, 16, DType::f32, kIgnore);
            }).find("made for 2 heads of 8: got 4 of 8"),
            std::string::npos);
}

/// KVC-09: a window refuses what would overwrite itself, and says what it takes.
TEST(BlockCache, AWindowRefusesTooManyTokensAtOnce) {
  const auto config = small_config(2);
  const auto model = small_model(config);
  BlockCache cache(config, BlockTable({16, 0}, 1000), 1);
  const std::string message =
      refusal([&] { feed(*model, cache, {tokens(200)}, 200, DType::f32, kIgnore); });
  EXPECT_NE(message.find("give at most 64, and none across a multiple of 64"), std::string::npos)
      << message;
}

/// What the host knows of the blocks: a first pass lies in order, and so does all of one sequence.
TEST(BlockCache, SaysWhereKeysLieOneAfterAnother) {
  const auto config = small_config(2);
  const auto pass = [&](BlockCache& cache, const std::vector<int32_t>& counts, int64_t T) {
    const auto B = static_cast<int64_t>(counts.size());
    const Tensor x = Tensor::zeros({B, T, 2, 8}, DType::f32);
    const auto dense = cache.append(0, x, x, Tensor::from(counts, {B})).dense;
    cache.append(1, x, x, Tensor::from(counts, {B}));
    return std::pair(dense.length, dense.step);
  };
  const std::pair<int64_t, int64_t> unknown(0, 0);
  BlockCache two(config, BlockTable({}, 300), 2, DType::f32);
  EXPECT_EQ(pass(two, {100, 100}, 100), std::pair(int64_t{100}, int64_t{128}));
  EXPECT_EQ(pass(two, {64, 64}, 64), unknown);  // between the first blocks of the other
  BlockCache ragged(config, BlockTable({}, 300), 2, DType::f32);
  EXPECT_EQ(pass(ragged, {100, 99}, 100), unknown);
  BlockCache padded(config, BlockTable({}, 300), 2, DType::f32);
  EXPECT_EQ(pass(padded, {90, 90}, 100), unknown);
  BlockCache one(config, BlockTable({}, 300), 1, DType::f32);
  EXPECT_EQ(pass(one, {128}, 128).first, 128);
  EXPECT_EQ(pass(one, {128}, 128).first, 256);
  BlockCache window(config, BlockTable({60, 0}, 300), 1, DType::f32);
  EXPECT_EQ(pass(window, {64}, 64).first, 64);
  EXPECT_EQ(pass(window, {64}, 64).first, 128);
  EXPECT_EQ(pass(window, {64}, 64), unknown);  // the first block is gone
}

/// KVC-08: another continuation, another turn, a shorter prompt, in one cache.
TEST(BlockCache, IsUsedAgainFromASharedBeginning) {
  const auto config = small_config(2);
  const auto model = small_model(config, DType::f64);
  BlockCache cache(config, BlockTable({}, 200), 1, DType::f64);
  const auto first = tokens(120, 1);
  testing::cached_logits(*model, cache, {first}, {50});
  for (const int64_t shared : {0, 1, 60, 119, 64, 3}) {
    auto second = std::vector<int32_t>(first.begin(), first.begin() + shared);
    const auto rest = tokens(30, 9);
    second.insert(second.end(), rest.begin(), rest.end());
    cache.truncate(0, std::min(shared, cache.position(0)));
    const int64_t kept = cache.position(0);
    const auto logits =
        testing::cached_logits(*model, cache, {{second.begin() + kept, second.end()}}, {50})[0];
    auto expected = testing::whole_logits(*model, second);
    expected.erase(expected.begin(), expected.begin() + kept * testing::kVocab);
    EXPECT_LE(testing::error(logits, expected), 1e-12) << shared;
    cache.truncate(0, 0);
    testing::cached_logits(*model, cache, {first}, {50});
  }
  EXPECT_THROW(cache.truncate(0, 121), Error);
  EXPECT_THROW(cache.truncate(0, -1), Error);
}

TEST(BlockCache, AWindowThatHasMovedOnIsNotCutBack) {
  const auto config = small_config(2);
  const auto model = small_model(config, DType::f64);
  BlockCache cache(config, BlockTable({16, 4}, 1000), 1, DType::f64);
  const auto ids = tokens(300);
  testing::cached_logits(*model, cache, {ids}, {64});
  EXPECT_NE(refusal([&] { cache.truncate(0, 150); }).find("moved past position 150"),
            std::string::npos);
  // Within what is still there it is cut, and goes on as if it had never been further.
  cache.truncate(0, 290);
  const auto logits =
      testing::cached_logits(*model, cache, {{ids.begin() + 290, ids.end()}}, {1})[0];
  auto expected = testing::whole_logits(*model, ids, {16, 4});
  expected.erase(expected.begin(), expected.begin() + 290 * testing::kVocab);
  EXPECT_LE(testing::error(logits, expected), 1e-12);
}

}  // namespace
}  // namespace headroom::infer
