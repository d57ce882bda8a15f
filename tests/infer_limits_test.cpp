// How far a text may go and what it takes: limits of positions (GEN-01, KVC-04), bytes of the cache
// (KVC-13), memory that stays flat (PRF-03).
#include <map>

#include "infer_model.h"
#include "tensor/allocator.h"

namespace headroom::testing {
namespace {

using infer::Generated;

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

/// GEN-01 and KVC-04: block_size 64, prompts of 63, 64, 65 and 1000 tokens, 0, 1 and 64 new ones.
TEST(Limits, LearnedPositionsEndAtBlockSize) {
  auto config = small_config(2, 64);
  config.position = configs::Position::learned;
  const auto model = small_model(config, DType::f64);
  for (const std::string cache : {"static", "none", "static,window=16,sinks=2"}) {
    for (const int64_t prompt : {63, 64, 65, 1000}) {
      for (const int64_t count : {0, 1, 64}) {
        Generated got;
        const std::string message =
            refusal([&] { got = run(*model, {tokens(prompt)}, greedy(count, cache)); });
        if (count == 0 || prompt + count <= 64) {
          EXPECT_EQ(message, "");
          EXPECT_EQ(static_cast<int64_t>(got.tokens.at(0).size()), count);
        } else {
          EXPECT_NE(message.find(fmt::format("prompt of {} tokens and {} new ones pass "
                                             "model.block_size 64",
                                             prompt, count)),
                    std::string::npos)
              << message;
        }
      }
    }
  }
}

TEST(Limits, RopeGoesOnUnderAWindowAndSaysSo) {
  const auto config = small_config(2, 64);
  const auto model = small_model(config, DType::f64);
  for (const int64_t prompt : {63, 64, 65, 1000}) {
    for (const int64_t count : {0, 1, 64}) {
      const auto plan = infer::plan_generation(config, {prompt}, greedy(count));
      const bool past = count > 0 && prompt + count > 64;
      EXPECT_EQ(plan.mask.window, past ? 64 : 0);
      EXPECT_EQ(plan.mask.sinks, past ? 4 : 0);
      EXPECT_EQ(plan.note.empty(), !past) << plan.note;
      if (past) {
        EXPECT_NE(plan.note.find(fmt::format("{} tokens pass block_size 64", prompt + count)),
                  std::string::npos);
        EXPECT_NE(plan.note.find("last 64 and the first 4"), std::string::npos);
      }
      const auto got = run(*model, {tokens(prompt)}, greedy(count));
      EXPECT_EQ(got.tokens[0], run(*model, {tokens(prompt)}, greedy(count, "none")).tokens[0]);
      EXPECT_EQ(got.stats.cache_bytes_held, plan.cache_bytes);
    }
  }
}

TEST(Limits, AWindowOfTheUsersOwnIsLeftAsItIs) {
  const auto plan =
      infer::plan_generation(small_config(2, 64), {100}, greedy(10, "static,window=16,sinks=1"));
  EXPECT_EQ(plan.mask.window, 16);
  EXPECT_EQ(plan.mask.sinks, 1);
  EXPECT_EQ(plan.note, "");
}

TEST(Limits, SizesThatCannotBeIndexedAreRefused) {
  const auto message = [](int64_t count) {
    return refusal([&] { infer::plan_generation(small_config(), {5}, greedy(count)); });
  };
  EXPECT_NE(message(-5).find("--tokens is -5"), std::string::npos);
  EXPECT_NE(message(int64_t{1} << 40).find("2147483647 at most"), std::string::npos);
}

/// KVC-13: what is reported is what is held, and follows n_kv_head, the window and the length.
TEST(CacheBytes, AreReportedAsHeld) {
  for (const int64_t n_kv_head : {8, 4, 2, 1}) {
    const auto config = small_config(n_kv_head, 1 << 20);
    const auto model = small_model(config);
    std::map<std::string, int64_t> besides;
    for (const int64_t count : {10, 200}) {
      for (const std::string cache : {"static", "static,window=128,sinks=4", "none"}) {
        auto how = greedy(count, cache);
        how.dtype = DType::f32;
        size_t during = 0;
        const size_t before = allocator(kCpu).bytes_in_use();
        const auto got =
            infer::generate(*model, {tokens(3), tokens(2)}, how, [&](int64_t, int32_t) {
              during = std::max(during, allocator(kCpu).bytes_in_use() - before);
              return true;
            });
        const int64_t slots = cache == "none" ? 0 : 3 + count;
        const int64_t formula = 2 * 2 * n_kv_head * 8 * slots * 2 * 4;
        EXPECT_EQ(got.stats.cache_bytes_held, formula) << cache;
        EXPECT_EQ(infer::plan_generation(config, {3, 2}, how).cache_bytes, formula);
        // Beside it the step's logits are alive while a token is handed over, and of a recorded
        // step the activations: of each sequence fewer than 32 rows as wide as the model in each
        // layer.
        const int64_t kept = cache == "none" ? 0 : 2 * 4 * config.n_layer * 32 * config.n_embd;
        const int64_t beside = static_cast<int64_t>(during) - formula;
        EXPECT_GE(beside, 0) << cache;
        EXPECT_LE(beside, 2000 + kept) << cache;
        // They are as many after 200 tokens as after 10; the tables name three blocks more.
        const int64_t first = besides.try_emplace(cache, beside).first->second;
        EXPECT_LE(std::abs(beside - first), 2 * 2 * 4 * 3) << cache;
        EXPECT_EQ(allocator(kCpu).bytes_in_use(), before);
      }
    }
    const auto long_plan =
        infer::plan_generation(config, {3}, greedy(2000, "static,window=128,sinks=4"));
    EXPECT_EQ(long_plan.slots, 4 * 64);
  }
}

/// PRF-03: what the allocator has handed out and what it has taken stay flat over 10,000 tokens.
TEST(Memory, StaysFlatWhileGenerating) {
  auto config = small_config(2, 64);
  config.n_layer = 1;
  const auto model = small_model(config);
  for (const auto& [cache, count] : {std::pair<std::string, size_t>{"static", 1000},
                                     {"static,window=64,sinks=4", 10000},
                                     {"static,window=64,sinks=4,dtype=int8", 1000}}) {
    auto how = greedy(static_cast<int64_t>(count), cache, 1.0);
    how.dtype = DType::f32;
    std::vector<size_t> in_use, reserved;
    const auto got = infer::generate(*model, {tokens(10)}, how, [&](int64_t, int32_t) {
      EXPECT_EQ(autograd::live_nodes(), 0);
      in_use.push_back(allocator(kCpu).bytes_in_use());
      reserved.push_back(allocator(kCpu).bytes_reserved());
      return true;
    });
    EXPECT_EQ(got.stats.tape_nodes, 0);
    ASSERT_EQ(in_use.size(), count);
    // The second step is recorded, and what it holds stays.
    EXPECT_EQ(*std::max_element(in_use.begin() + 2, in_use.end()), in_use[2]);
    EXPECT_EQ(reserved.back(), reserved[200]);
  }
}

}  // namespace
}  // namespace headroom::testing
