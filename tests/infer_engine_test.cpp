// Generation: the same tokens for every cache and batch, rows that end early, limits, memory
// (GEN-01, 08, 09, KVC-02, 14, 16, PRF-03).
#include "infer/engine.h"

#include "configs/size.h"
#include "infer_model.h"
#include "tensor/allocator.h"

namespace headroom::testing {
namespace {

using infer::Generated;
using infer::GenerateOptions;
using infer::OnToken;
using infer::Sequences;

const OnToken kGoOn = [](int64_t, int32_t) { return true; };

GenerateOptions options(int64_t count, const std::string& cache = "static",
                        double temperature = 0) {
  return {.tokens = count,
          .sampling = {.temperature = temperature, .seed = 3},
          .cache = infer::parse_cache_spec(cache),
          .dtype = DType::f64};
}

Generated run(const nn::GPT& model, const Sequences& prompts, const GenerateOptions& how) {
  return infer::generate(model, prompts, how, kGoOn);
}

const std::vector<std::string> kCaches = {"static", "none", "static,window=20",
                                          "static,window=20,sinks=3"};

/// `--cache none` computes everything again and gives the same tokens, greedy and sampled, within
/// block_size and past it, under any window.
TEST(Engine, NoneGivesTheSameTokens) {
  for (const int64_t n_kv_head : {8, 2, 1}) {
    const auto model = small_model(small_config(n_kv_head, 32), DType::f64);
    const Sequences prompts = {tokens(5, 1), tokens(50, 2), tokens(1, 3)};
    for (const double temperature : {0.0, 1.0}) {
      const auto expected = run(*model, prompts, options(40, "none", temperature));
      const auto got = run(*model, prompts, options(40, "static", temperature));
      EXPECT_EQ(got.tokens, expected.tokens);
      for (size_t row = 0; row < prompts.size(); ++row) {
        EXPECT_LE(error(got.log_probs[row], expected.log_probs[row]), 1e-10);
      }
    }
  }
}

TEST(Engine, AWindowLimitsWhatIsSeenWithAndWithoutACache) {
  const auto model = small_model(small_config(2, 256), DType::f64);
  const Sequences prompts = {tokens(30, 1)};
  auto recompute = options(30, "static,window=20,sinks=3");
  const auto windowed = run(*model, prompts, recompute);
  recompute.cache.recompute = true;
  EXPECT_EQ(run(*model, prompts, recompute).tokens, windowed.tokens);
  EXPECT_NE(run(*model, prompts, options(30)).tokens, windowed.tokens);
}

/// The model's own greedy text, by hand: the largest of the whole sequence's last logits.
TEST(Engine, GreedyTokensAreTheLargestLogits) {
  const auto model = small_model(small_config(2), DType::f64);
  auto ids = tokens(6);
  const auto got = run(*model, {ids}, options(20));
  for (const int32_t token : got.tokens[0]) {
    const auto logits = whole_logits(*model, ids);
    const auto last = logits.end() - kVocab;
    EXPECT_EQ(token, std::max_element(last, logits.end()) - last);
    ids.push_back(token);
  }
}

/// KVC-14: asking for more changes nothing about the beginning.
TEST(Engine, AShorterTextIsAPrefixOfALongerOne) {
  const auto model = small_model(small_config(2, 32), DType::f64);
  for (const std::string& cache : kCaches) {
    const auto longest = run(*model, {tokens(9)}, options(63, cache, 1.0)).tokens[0];
    for (const int64_t count : {0, 1, 5, 20, 21, 23, 24, 40}) {
      const auto shorter = run(*model, {tokens(9)}, options(count, cache, 1.0)).tokens[0];
      ASSERT_EQ(static_cast<int64_t>(shorter.size()), count);
      EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longest.begin())) << cache << count;
    }
  }
}

/// KVC-16 and GEN-08: each row of a ragged batch as if alone, when rows end after 1, 3, 10 tokens
/// and never; the loop ends with the last row, and a row that has ended is given nothing.
TEST(Engine, RowsThatEndChangeNothingForTheOthers) {
  const auto model = small_model(small_config(2), DType::f64);
  const Sequences prompts = {tokens(17, 1), tokens(1, 2), tokens(5, 3), tokens(30, 4)};
  const std::vector<size_t> ends = {1, 3, 10, 1000};
  for (const std::string& cache : kCaches) {
    std::vector<size_t> seen(4, 0);
    const auto batch =
        infer::generate(*model, prompts, options(30, cache), [&](int64_t row, int32_t) {
          return ++seen[static_cast<size_t>(row)] < ends[static_cast<size_t>(row)];
        });
    EXPECT_EQ(seen, (std::vector<size_t>{1, 3, 10, 30}));
    EXPECT_EQ(batch.stats.decode_tokens, 0 + 2 + 9 + 29);
    for (size_t row = 0; row < 4; ++row) {
      const auto alone =
          run(*model, {prompts[row]}, options(static_cast<int64_t>(seen[row]), cache));
      EXPECT_EQ(batch.tokens[row], alone.tokens[0]) << cache;
      EXPECT_LE(error(batch.log_probs[row], alone.log_probs[0]), 1e-10);
    }
  }
}

TEST(Engine, StopsWhenEveryRowHasEnded) {
  const auto model = small_model(small_config(2), DType::f64);
  int64_t told = 0;
  const auto result =
      infer::generate(*model, {tokens(4, 1), tokens(6, 2)}, options(50), [&](int64_t row, int32_t) {
        ++told;
        return row == 1 && told < 6;  // row 0 ends at once, row 1 after 5 tokens
      });
  EXPECT_EQ(result.tokens[0].size(), 1U);
  EXPECT_EQ(result.tokens[1].size(), 5U);
  EXPECT_EQ(result.stats.passes, 1 + 4);
}

/// GEN-09: what is promised. Repeats are the same; copies within a batch are the same; a row's
/// stream depends on its number only, so sampling row 0 is the same in any batch.
TEST(Engine, RepeatsAndCopiesAgree) {
  const auto model = small_model(small_config(2));
  for (const double temperature : {0.0, 1.0}) {
    auto how = options(25, "static", temperature);
    how.dtype = DType::f32;
    const auto alone = run(*model, {tokens(12)}, how);
    for (const size_t copies : {2U, 3U, 8U}) {
      Sequences prompts(copies, tokens(12));
      prompts.push_back(tokens(20, 5));
      const auto batch = run(*model, prompts, how);
      EXPECT_EQ(batch.tokens, run(*model, prompts, how).tokens);
      EXPECT_EQ(batch.tokens[0], alone.tokens[0]);
      for (size_t row = 1; row < copies; ++row) {
        if (temperature == 0) {
          EXPECT_EQ(batch.tokens[row], batch.tokens[0]);
        } else {
          EXPECT_NE(batch.tokens[row], batch.tokens[0]);
        }
      }
    }
  }
}

TEST(Engine, TheNumberOfThreadsChangesNothing) {
  const auto model = small_model(small_config(2));
  auto how = options(20);
  how.dtype = DType::f32;
  const auto expected = run(*model, {tokens(12), tokens(3, 1)}, how).tokens;
  for (const int threads : {2, 4}) {
    kernels::set_threads(threads);
    EXPECT_EQ(run(*model, {tokens(12), tokens(3, 1)}, how).tokens, expected) << threads;
  }
  kernels::set_threads(kThreads);
}

/// KVC-02: a model that has learned its text by heart recites it, with and without a cache, from
/// prompts of 1, 2, 17 and block_size - 1 tokens.
TEST(Engine, AnOverfittedModelRecitesItsText) {
  for (const int64_t n_kv_head : {8, 2, 1}) {
    auto config = small_config(n_kv_head, 48);
    std::vector<int32_t> text(48);
    for (size_t i = 0; i < text.size(); ++i) {
      text[i] = static_cast<int32_t>(i < 37 ? i : (i * i) % 37);
    }
    std::swap(text[3], text[20]);
    const nn::GPT model(config, kVocab, nn::Scope{.seed = 5});
    std::vector<kernels::AdamWTensors> tensors;
    for (const nn::Parameter& p : model.parameters()) {
      tensors.push_back({p.value.value(),
                         {},
                         Tensor::zeros(p.value.shape(), DType::f32),
                         Tensor::zeros(p.value.shape(), DType::f32),
                         0.0});
    }
    auto targets = std::vector<int32_t>(text.begin() + 1, text.end());
    targets.push_back(-1);
    double loss = 0;
    for (int64_t step = 1; step <= 150; ++step) {
      const auto mean = model.loss(Tensor::from(text, {1, 48}), Tensor::from(targets, {1, 48}), {});
      mean.backward();
      loss = mean.value().item();
      const auto parameters = model.parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        tensors[i].grad = parameters[i].value.grad();
      }
      kernels::backend(kCpu).adamw(tensors, {0.01, 0.9, 0.95, 1e-8, step, 1.0});
      for (const nn::Parameter& p : parameters) {
        nn::Variable(p.value).clear_grad();
        nn::Variable(p.value).changed();
      }
    }
    ASSERT_LT(loss, 0.05);
    for (const int64_t prompt : {1, 2, 17, 47}) {
      for (const std::string cache : {"static", "none"}) {
        auto how = options(48 - prompt, cache);
        how.dtype = DType::f32;
        const auto got = run(model, {{text.begin(), text.begin() + prompt}}, how);
        EXPECT_EQ(got.tokens[0], std::vector<int32_t>(text.begin() + prompt, text.end()))
            << cache << ", prompt of " << prompt;
      }
    }
  }
}

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
            refusal([&] { got = run(*model, {tokens(prompt)}, options(count, cache)); });
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
      const auto plan = infer::plan_generation(config, {prompt}, options(count));
      const bool past = count > 0 && prompt + count > 64;
      EXPECT_EQ(plan.mask.window, past ? 64 : 0);
      EXPECT_EQ(plan.mask.sinks, past ? 4 : 0);
      EXPECT_EQ(plan.note.empty(), !past) << plan.note;
      if (past) {
        EXPECT_NE(plan.note.find(fmt::format("{} tokens pass block_size 64", prompt + count)),
                  std::string::npos);
        EXPECT_NE(plan.note.find("last 64 and the first 4"), std::string::npos);
      }
      const auto got = run(*model, {tokens(prompt)}, options(count));
      EXPECT_EQ(got.tokens[0], run(*model, {tokens(prompt)}, options(count, "none")).tokens[0]);
      EXPECT_EQ(got.stats.cache_bytes_held, plan.cache_bytes);
    }
  }
}

TEST(Limits, AWindowOfTheUsersOwnIsLeftAsItIs) {
  const auto plan =
      infer::plan_generation(small_config(2, 64), {100}, options(10, "static,window=16,sinks=1"));
  EXPECT_EQ(plan.mask.window, 16);
  EXPECT_EQ(plan.mask.sinks, 1);
  EXPECT_EQ(plan.note, "");
}

TEST(Limits, SizesThatCannotBeIndexedAreRefused) {
  const auto message = [](int64_t count) {
    return refusal([&] { infer::plan_generation(small_config(), {5}, options(count)); });
  };
  EXPECT_NE(message(-5).find("--tokens is -5"), std::string::npos);
  EXPECT_NE(message(int64_t{1} << 40).find("2147483647 at most"), std::string::npos);
}

/// KVC-13: what is reported is what is held, and follows n_kv_head, the window and the length.
TEST(CacheBytes, AreReportedAsHeld) {
  for (const int64_t n_kv_head : {8, 4, 2, 1}) {
    const auto config = small_config(n_kv_head, 1 << 20);
    const auto model = small_model(config);
    for (const int64_t count : {10, 200}) {
      for (const std::string cache : {"static", "static,window=128,sinks=4", "none"}) {
        auto how = options(count, cache);
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
        // Beside it only the step's logits are alive while a token is handed over.
        EXPECT_NEAR(static_cast<double>(during), static_cast<double>(formula), 2000) << cache;
        EXPECT_EQ(allocator(kCpu).bytes_in_use(), before);
      }
    }
    const auto long_plan =
        infer::plan_generation(config, {3}, options(2000, "static,window=128,sinks=4"));
    EXPECT_EQ(long_plan.slots, 4 * 64);
  }
}

/// PRF-03: what the allocator has handed out and what it has taken stay flat over 1000 tokens.
TEST(Memory, StaysFlatWhileGenerating) {
  const auto model = small_model(small_config(2, 64));
  for (const std::string cache : {"static", "static,window=64,sinks=4"}) {
    auto how = options(1000, cache, 1.0);
    how.dtype = DType::f32;
    std::vector<size_t> in_use, reserved;
    const auto got = infer::generate(*model, {tokens(10)}, how, [&](int64_t, int32_t) {
      EXPECT_EQ(autograd::live_nodes(), 0);
      in_use.push_back(allocator(kCpu).bytes_in_use());
      reserved.push_back(allocator(kCpu).bytes_reserved());
      return true;
    });
    EXPECT_EQ(got.stats.tape_nodes, 0);
    ASSERT_EQ(in_use.size(), 1000U);
    EXPECT_EQ(*std::max_element(in_use.begin() + 1, in_use.end()), in_use[1]);
    EXPECT_EQ(reserved.back(), reserved[200]);
  }
}

TEST(Engine, CountsWhatItDid) {
  const auto model = small_model(small_config(2, 2000), DType::f64);
  const auto got = run(*model, {tokens(1100, 1), tokens(3, 2)}, options(7));
  EXPECT_EQ(got.stats.prefill_tokens, 1103);
  EXPECT_EQ(got.stats.decode_tokens, 12);
  EXPECT_EQ(got.stats.passes, 3 + 6);  // 1100 tokens in chunks of 512
  EXPECT_GT(got.stats.prefill_seconds, 0);
  EXPECT_GT(got.stats.decode_seconds, 0);
}

TEST(Engine, RunsInBf16) {
  const auto model = small_model(small_config(2));
  auto how = options(20);
  how.dtype = DType::bf16;
  const auto got = run(*model, {tokens(5), tokens(9, 1)}, how);
  EXPECT_EQ(got.tokens[0].size(), 20U);
  EXPECT_EQ(got.stats.cache_bytes_held, 2 * 2 * 2 * 8 * 29 * 2 * 2);
}

/// A model with more rows than its tokenizer has tokens never gives an id without a text.
TEST(Engine, ChoosesAmongTheTokenizersIdsOnly) {
  const auto model = small_model(small_config(2), DType::f64);
  auto how = options(60, "static", 5.0);
  const auto highest = [&] {
    const auto row = run(*model, {tokens(3)}, how).tokens[0];
    return *std::max_element(row.begin(), row.end());
  };
  EXPECT_GE(highest(), 10);
  how.vocabulary = 10;
  EXPECT_LT(highest(), 10);
  how.vocabulary = kVocab + 1;
  EXPECT_THROW(highest(), Error);
}

TEST(Engine, RefusesAnEmptyPrompt) {
  const auto model = small_model(small_config(2), DType::f64);
  EXPECT_THROW(run(*model, {tokens(3), {}}, options(5)), Error);
}

}  // namespace
}  // namespace headroom::testing
