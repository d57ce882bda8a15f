// Generation: the same tokens for every cache and batch, and rows that end early (GEN-08, 09,
// KVC-02, 14, 16).
#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::Generated;
using infer::GenerateOptions;
using infer::Sequences;

const std::vector<std::string> kCaches = {"static", "none", "static,window=20",
                                          "static,window=20,sinks=3"};

/// `--cache none` computes everything again and gives the same tokens, greedy and sampled, within
/// block_size and past it, under any window.
TEST(Engine, NoneGivesTheSameTokens) {
  for (const int64_t n_kv_head : {8, 2, 1}) {
    const auto model = small_model(small_config(n_kv_head, 32), DType::f64);
    const Sequences prompts = {tokens(5, 1), tokens(50, 2), tokens(1, 3)};
    for (const double temperature : {0.0, 1.0}) {
      const auto expected = run(*model, prompts, greedy(40, "none", temperature));
      const auto got = run(*model, prompts, greedy(40, "static", temperature));
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
  auto recompute = greedy(30, "static,window=20,sinks=3");
  const auto windowed = run(*model, prompts, recompute);
  recompute.cache.recompute = true;
  EXPECT_EQ(run(*model, prompts, recompute).tokens, windowed.tokens);
  EXPECT_NE(run(*model, prompts, greedy(30)).tokens, windowed.tokens);
}

/// The model's own greedy text, by hand: the largest of the whole sequence's last logits.
TEST(Engine, GreedyTokensAreTheLargestLogits) {
  const auto model = small_model(small_config(2), DType::f64);
  auto ids = tokens(6);
  const auto got = run(*model, {ids}, greedy(20));
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
    const auto longest = run(*model, {tokens(9)}, greedy(63, cache, 1.0)).tokens[0];
    for (const int64_t count : {0, 1, 5, 20, 21, 23, 24, 40}) {
      const auto shorter = run(*model, {tokens(9)}, greedy(count, cache, 1.0)).tokens[0];
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
        infer::generate(*model, prompts, greedy(30, cache), [&](int64_t row, int32_t) {
          return ++seen[static_cast<size_t>(row)] < ends[static_cast<size_t>(row)];
        });
    EXPECT_EQ(seen, (std::vector<size_t>{1, 3, 10, 30}));
    EXPECT_EQ(batch.stats.decode_tokens, 0 + 2 + 9 + 29);
    for (size_t row = 0; row < 4; ++row) {
      const auto alone =
          run(*model, {prompts[row]}, greedy(static_cast<int64_t>(seen[row]), cache));
      EXPECT_EQ(batch.tokens[row], alone.tokens[0]) << cache;
      EXPECT_LE(error(batch.log_probs[row], alone.log_probs[0]), 1e-10);
    }
  }
}

TEST(Engine, StopsWhenEveryRowHasEnded) {
  const auto model = small_model(small_config(2), DType::f64);
  int64_t told = 0;
  const auto result =
      infer::generate(*model, {tokens(4, 1), tokens(6, 2)}, greedy(50), [&](int64_t row, int32_t) {
        ++told;
        return row == 1 && told < 6;  // row 0 ends at once, row 1 after 5 tokens
      });
  EXPECT_EQ(result.tokens[0].size(), 1U);
  EXPECT_EQ(result.tokens[1].size(), 5U);
  EXPECT_EQ(result.stats.work.passes, 1 + 4);
}

/// GEN-09: what is promised. Repeats are the same; copies within a batch are the same; a row's
/// stream depends on its number only, so sampling row 0 is the same in any batch.
TEST(Engine, RepeatsAndCopiesAgree) {
  const auto model = small_model(small_config(2));
  for (const double temperature : {0.0, 1.0}) {
    auto how = greedy(25, "static", temperature);
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
  auto how = greedy(20);
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
    const Tensor unscaled = Tensor::from(std::vector<double>{1}, {});
    for (int64_t step = 1; step <= 150; ++step) {
      const auto mean = model.loss(Tensor::from(text, {1, 48}), Tensor::from(targets, {1, 48}), {});
      mean.backward();
      loss = mean.value().item();
      const auto parameters = model.parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        tensors[i].grad = parameters[i].value.grad();
      }
      kernels::backend(kCpu).adamw(tensors, {0.01, 0.9, 0.95, 1e-8, step, unscaled});
      for (const nn::Parameter& p : parameters) {
        nn::Variable(p.value).clear_grad();
        nn::Variable(p.value).changed();
      }
    }
    ASSERT_LT(loss, 0.05);
    for (const int64_t prompt : {1, 2, 17, 47}) {
      for (const std::string cache : {"static", "none"}) {
        auto how = greedy(48 - prompt, cache);
        how.dtype = DType::f32;
        const auto got = run(model, {{text.begin(), text.begin() + prompt}}, how);
        EXPECT_EQ(got.tokens[0], std::vector<int32_t>(text.begin() + prompt, text.end()))
            << cache << ", prompt of " << prompt;
      }
    }
  }
}

TEST(Engine, CountsWhatItDid) {
  const auto model = small_model(small_config(2, 2000), DType::f64);
  const auto got = run(*model, {tokens(1100, 1), tokens(3, 2)}, greedy(7));
  EXPECT_EQ(got.stats.prefill_tokens, 1103);
  EXPECT_EQ(got.stats.decode_tokens, 12);
  EXPECT_EQ(got.stats.work.passes, 3 + 6);  // 1100 tokens in chunks of 512
  EXPECT_GT(got.stats.prefill_seconds, 0);
  EXPECT_GT(got.stats.decode_seconds, 0);
}

TEST(Engine, RunsInBf16) {
  const auto model = small_model(small_config(2));
  auto how = greedy(20);
  how.dtype = DType::bf16;
  const auto got = run(*model, {tokens(5), tokens(9, 1)}, how);
  EXPECT_EQ(got.tokens[0].size(), 20U);
  EXPECT_EQ(got.stats.cache_bytes_held, 2 * 2 * 2 * 8 * 29 * 2 * 2);
}

/// A model with more rows than its tokenizer has tokens never gives an id without a text.
TEST(Engine, ChoosesAmongTheTokenizersIdsOnly) {
  const auto model = small_model(small_config(2), DType::f64);
  auto how = greedy(60, "static", 5.0);
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
  EXPECT_THROW(run(*model, {tokens(3), {}}, greedy(5)), Error);
}

}  // namespace
}  // namespace headroom::testing
