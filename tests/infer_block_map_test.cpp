// Who holds which block: sequences that share, part and forget, against a memory that remembers
// what was written where; and the cache on top of it, whose sequences go on from one another's
// (GEN-11).
#include "infer/block_map.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "configs/size.h"
#include "infer/block_cache.h"
#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::BlockCache;
using infer::BlockMap;
using infer::BlockTable;
using kernels::AttentionMask;

/// A memory of numbers, each written once, and what every sequence should find in it.
class Memory {
 public:
  Memory(const BlockTable& table, int64_t batch, const std::vector<int64_t>& prefixes = {})
      : table_(table),
        map_(table, batch, prefixes),
        held_(static_cast<size_t>(map_.slots()), -1),
        told_(static_cast<size_t>(batch)) {}

  int64_t length(int64_t b) const { return std::ssize(told_[static_cast<size_t>(b)]); }
  const BlockMap& map() const { return map_; }

  void append(int64_t b, int64_t count) {
    auto& told = told_[static_cast<size_t>(b)];
    for (const auto& copy : map_.prepare(b, length(b), count)) {
      std::copy_n(held_.begin() + copy.from, copy.count, held_.begin() + copy.to);
    }
    for (int64_t i = 0; i < count; ++i) {
      held_[static_cast<size_t>(map_.slot(b, length(b)))] = next_;
      told.push_back(next_++);
    }
  }
  bool can_return(int64_t b, int64_t position) const { return map_.can_return(b, position); }
  void truncate(int64_t b, int64_t length_after) {
    map_.truncate(b, length_after);
    told_[static_cast<size_t>(b)].resize(static_cast<size_t>(length_after));
  }
  void reorder(const std::vector<int64_t>& parents) {
    map_.reorder(parents);
    const auto before = told_;
    for (size_t b = 0; b < parents.size(); ++b) {
      told_[b] = parents[b] < 0 ? std::vector<int64_t>() : before[static_cast<size_t>(parents[b])];
    }
  }
  /// What the token after the last would see.
  void expect_intact() const {
    for (int64_t b = 0; b < std::ssize(told_); ++b) {
      const auto& told = told_[static_cast<size_t>(b)];
      for (const int64_t start : table_.visible(length(b), length(b))) {
        for (int64_t p = start; p < std::min(start + 64, length(b)); ++p) {
          ASSERT_EQ(held_[static_cast<size_t>(map_.slot(b, p))], told[static_cast<size_t>(p)])
              << "sequence " << b << ", position " << p << " of " << length(b);
        }
      }
    }
  }

 private:
  BlockTable table_;
  BlockMap map_;
  std::vector<int64_t> held_;
  std::vector<std::vector<int64_t>> told_;
  int64_t next_ = 0;
};

TEST(BlockMap, FindsEverythingAgainAfterAnyForksAndCuts) {
  for (const AttentionMask mask : {AttentionMask{}, AttentionMask{40, 4}, AttentionMask{130, 0}}) {
    const BlockTable table(mask, 500, 20);
    Memory memory(table, 4);
    const RandomStream random(5, "test", static_cast<uint64_t>(mask.window));
    uint64_t draw = 0;
    for (int step = 0; step < 2000; ++step) {
      const auto b = static_cast<int64_t>(random.integer(draw++, 4));
      const auto what = random.integer(draw++, 10);
      if (what < 6) {
        const auto count = static_cast<int64_t>(random.integer(draw++, 20)) + 1;
        memory.append(b, std::min(count, 500 - memory.length(b)));
      } else if (what < 8) {
        const auto back = static_cast<int64_t>(random.integer(draw++, 30));
        const int64_t length = std::max<int64_t>(0, memory.length(b) - back);
        if (memory.can_return(b, length)) {
          memory.truncate(b, length);
        }
      } else if (memory.length(b) == 500) {
        memory.truncate(b, 0);
      } else {
        std::vector<int64_t> parents(4);
        for (int64_t& parent : parents) {
          parent = static_cast<int64_t>(random.integer(draw++, 5)) - 1;
        }
        memory.reorder(parents);
      }
      memory.expect_intact();
      if (HasFatalFailure()) {
        FAIL() << "step " << step << ", window " << mask.window;
      }
    }
  }
}

TEST(BlockMap, KnowsWhatItCanReturnTo) {
  Memory window(BlockTable({64, 0}, 1000), 1);  // a ring of 2 blocks
  const auto fill = [&window](int64_t length) {
    while (window.length(0) < length) {
      window.append(0, 1);
    }
  };
  fill(128);
  EXPECT_TRUE(window.can_return(0, 64));
  fill(129);
  EXPECT_FALSE(window.can_return(0, 64));  // block 0 was overwritten, and position 64 sees it
  EXPECT_TRUE(window.can_return(0, 127));
  EXPECT_TRUE(window.can_return(0, 0));  // which sees nothing
  window.truncate(0, 127);
  EXPECT_FALSE(window.can_return(0, 64));  // block 0 doesn't come back
  Memory all(BlockTable({}, 1000), 1);
  all.append(0, 1000);
  EXPECT_TRUE(all.can_return(0, 1));
}

TEST(BlockMap, WithoutForksHasTheSlotsOfItsTable) {
  EXPECT_EQ(BlockMap(BlockTable({}, 37), 3).slots(), 3 * 37);
  EXPECT_EQ(BlockMap(BlockTable({}, 1000), 3).slots(), 3 * 1000);
  EXPECT_EQ(BlockMap(BlockTable({128, 4}, 100000), 2).slots(), 2 * 4 * 64);
}

/// 4 sequences of 300 tokens whose first 200 are one: 3 whole blocks are there once, the other 108
/// slots four times. What is held at once keeps to that.
TEST(BlockMap, CountsWhatIsSharedOnce) {
  Memory memory(BlockTable({}, 300), 4, {200});
  EXPECT_EQ(memory.map().slots(), 3 * 64 + 4 * 108);
  memory.append(0, 200);
  EXPECT_EQ(memory.map().slots_in_use(), 4 * 64);
  memory.reorder({0, 0, 0, 0});
  EXPECT_EQ(memory.map().slots_in_use(), 4 * 64);
  for (int64_t b = 0; b < 4; ++b) {
    memory.append(b, 1);  // the last to write keeps the block that was shared
  }
  EXPECT_EQ(memory.map().slots_in_use(), 3 * 64 + 4 * 64);
  for (int64_t b = 0; b < 4; ++b) {
    memory.append(b, 99);
  }
  EXPECT_EQ(memory.map().slots_in_use(), memory.map().slots());
  EXPECT_EQ(memory.map().most_slots_in_use(), memory.map().slots());
  memory.reorder({1, 1, 1, 1});
  EXPECT_EQ(memory.map().slots_in_use(), 300);
  memory.expect_intact();
  // Two prompts, two sequences each: only whole blocks are shared for good.
  EXPECT_EQ(BlockMap(BlockTable({}, 300), 4, std::vector<int64_t>{63, 130}).slots(),
            4 * 300 - 2 * 64);
  // A ring's blocks are used again; those of the sinks are not.
  EXPECT_EQ(BlockMap(BlockTable({100, 4}, 5000), 4, std::vector<int64_t>{700}).slots(),
            4 * 4 * 64 - 3 * 64);
}

TEST(BlockMap, RefusesMoreThanWasPlanned) {
  Memory memory(BlockTable({}, 300), 2, {200});
  memory.append(0, 300);
  EXPECT_THROW(memory.append(1, 300), Error);
}

/// GEN-11: sequences that change parents again and again give the logits of their own histories,
/// for every number of KV heads, with windows and without.
TEST(BlockCache, GoesOnFromAnotherSequencesPast) {
  for (const int64_t n_kv_head : {8, 2, 1}) {
    for (const AttentionMask mask : {AttentionMask{}, AttentionMask{20, 3}, AttentionMask{70, 0}}) {
      const auto config = small_config(n_kv_head, 64);
      const auto model = small_model(config, DType::f64);
      BlockCache cache(config, BlockTable(mask, 300), 3, DType::f64);
      infer::Sequences told = {tokens(60, 1), tokens(130, 2), tokens(3, 3)};
      cached_logits(*model, cache, told, {64});
      const std::vector<std::vector<int64_t>> all_parents = {
          {1, 1, 0}, {2, 0, 1}, {0, 0, 0}, {0, 1, 2}, {2, 2, 1}};
      uint64_t row = 10;
      for (const auto& parents : all_parents) {
        cache.reorder(parents);
        const auto before = told;
        infer::Sequences more;
        for (size_t b = 0; b < 3; ++b) {
          told[b] = before[static_cast<size_t>(parents[b])];
          more.push_back(tokens(static_cast<int64_t>(5 + 9 * b), ++row));
        }
        const auto logits = cached_logits(*model, cache, more, {1});
        for (size_t b = 0; b < 3; ++b) {
          told[b].insert(told[b].end(), more[b].begin(), more[b].end());
          ASSERT_EQ(cache.position(static_cast<int64_t>(b)), std::ssize(told[b]));
          auto expected = whole_logits(*model, told[b], mask);
          expected.erase(expected.begin(), expected.end() - std::ssize(logits[b]));
          ASSERT_LE(error(logits[b], expected), 1e-12) << "window " << mask.window;
        }
      }
      EXPECT_LE(cache.most_bytes_in_use(), cache.bytes());
    }
  }
}

TEST(BlockCache, RefusesParentsThatAreNoSequences) {
  BlockCache cache(small_config(2), BlockTable({}, 30), 2);
  EXPECT_THROW(cache.reorder(std::vector<int64_t>{0, 2}), Error);
  EXPECT_THROW(cache.reorder(std::vector<int64_t>{0}), Error);
}

/// KVC-08: one cache for a conversation of three turns, the last prompt again, a shorter one and
/// another: it goes on from what is still there, or begins anew, and the logits are those of a
/// fresh process.
TEST(BlockCache, ServesOnePromptAfterAnother) {
  for (const AttentionMask mask : {AttentionMask{}, AttentionMask{16, 4}, AttentionMask{100, 0}}) {
    const auto model = small_model(small_config(2), DType::f64);
    BlockCache cache(model->config(), BlockTable(mask, 400), 1, DType::f64);
    std::vector<int32_t> seen;
    int64_t begun_anew = 0;
    for (const auto& prompt : {tokens(90, 1), tokens(200, 1), tokens(270, 1), tokens(270, 1),
                               tokens(150, 1), tokens(30, 7)}) {
      const auto same = std::mismatch(seen.begin(), seen.end(), prompt.begin(), prompt.end()).first;
      // The prompt's last token is given again: its logits are wanted.
      int64_t kept = std::min(same - seen.begin(), std::ssize(prompt) - 1);
      if (!cache.can_truncate(0, kept)) {
        kept = 0;
        ++begun_anew;
      }
      cache.truncate(0, kept);
      const auto logits =
          cached_logits(*model, cache, {{prompt.begin() + kept, prompt.end()}}, {1})[0];
      auto expected = whole_logits(*model, prompt, mask);
      expected.erase(expected.begin(), expected.begin() + kept * kVocab);
      ASSERT_LE(error(logits, expected), 1e-12) << "window " << mask.window;
      seen = prompt;
    }
    EXPECT_EQ(begun_anew, mask.window == 0 ? 0 : 1);  // where the prompt became shorter
  }
}

/// A window whose past is gone can still begin anew (KVC-08).
TEST(BlockCache, BeginsAnewAfterAnyText) {
  const auto config = small_config(2);
  const auto model = small_model(config, DType::f64);
  BlockCache cache(config, BlockTable({16, 4}, 1000), 1, DType::f64);
  cached_logits(*model, cache, {tokens(400)}, {64});
  EXPECT_FALSE(cache.can_truncate(0, 150));
  ASSERT_TRUE(cache.can_truncate(0, 0));
  cache.truncate(0, 0);
  EXPECT_LE(error(cached_logits(*model, cache, {tokens(90, 5)}, {64})[0],
                  whole_logits(*model, tokens(90, 5), {16, 4})),
            1e-12);
}

/// Blocks of 64 keys and values of 2 heads of 8 in 2 layers: a pass reads the keys that its queries
/// see, block by block up to the last.
TEST(BlockCache, CountsTheBytesThatAttentionReads) {
  const auto config = small_config(2);
  const auto model = small_model(config);
  BlockCache cache(config, BlockTable({}, 200), 2);
  constexpr int64_t kKey = 2 * 2 * 2 * 8 * 4;
  cached_logits(*model, cache, {tokens(100), tokens(3)}, {100});
  EXPECT_EQ(cache.bytes_read(), 103 * kKey);
  cached_logits(*model, cache, {tokens(1), {}}, {1});
  EXPECT_EQ(cache.bytes_read(), (103 + 101) * kKey);
  BlockCache window(config, BlockTable({16, 0}, 200), 1);
  cached_logits(*model, window, {tokens(64)}, {64});
  cached_logits(*model, window, {tokens(20)}, {1});
  int64_t keys = 64;
  for (int64_t p = 64; p < 84; ++p) {
    keys += p + 1 - (p - 15) / 64 * 64;
  }
  EXPECT_EQ(window.bytes_read(), keys * kKey);
}

}  // namespace
}  // namespace headroom::testing
