// Which token is chosen: GEN-03 and GEN-04, and that frequencies are the probabilities.
#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "tensor/check.h"
#include "tensor/rng.h"

namespace headroom::infer {
namespace {

using Logits = std::vector<double>;

Choice choose(const Logits& logits, const SamplingOptions& options, int64_t row, int64_t index) {
  return infer::choose(Tensor::from(logits, {std::ssize(logits)}), options, row, index);
}

constexpr double kInf = std::numeric_limits<double>::infinity();

Logits some_logits(int64_t count) {
  const RandomStream stream(3, "test logits");
  Logits logits;
  for (int64_t i = 0; i < count; ++i) {
    logits.push_back(2 * stream.normal(static_cast<uint64_t>(i)));
  }
  return logits;
}

/// How often each token comes in `draws` draws.
std::map<int32_t, int> frequencies(const Logits& logits, const SamplingOptions& options,
                                   int draws = 4000) {
  std::map<int32_t, int> count;
  for (int i = 0; i < draws; ++i) {
    ++count[choose(logits, options, 0, i).token];
  }
  return count;
}

std::set<int32_t> support(const Logits& logits, const SamplingOptions& options) {
  std::set<int32_t> tokens;
  for (const auto& [token, count] : frequencies(logits, options)) {
    tokens.insert(token);
  }
  return tokens;
}

TEST(Sampler, DrawsInProportionToTheProbabilities) {
  const Logits logits = {std::log(0.5), std::log(0.3), -kInf, std::log(0.2)};
  const auto count = frequencies(logits, {.temperature = 1.0}, 20000);
  EXPECT_NEAR(count.at(0), 10000, 300);  // 4 standard deviations
  EXPECT_NEAR(count.at(1), 6000, 260);
  EXPECT_NEAR(count.at(3), 4000, 230);
  EXPECT_FALSE(count.contains(2));
}

TEST(Sampler, DividesByTheTemperature) {
  const Logits logits = {std::log(4.0), 0.0};
  EXPECT_NEAR(frequencies(logits, {.temperature = 2.0}, 20000).at(0), 20000.0 * 2 / 3, 270);
  EXPECT_NEAR(frequencies(logits, {.temperature = 0.5}, 20000).at(0), 20000.0 * 16 / 17, 140);
}

TEST(Sampler, ReportsTheModelsOwnProbability) {
  const Logits logits = {std::log(0.5), std::log(0.3), std::log(0.2)};
  EXPECT_NEAR(choose(logits, {.temperature = 0}, 0, 0).log_prob, std::log(0.5), 1e-12);
  const Choice last = choose(logits, {.temperature = 1e9, .top_k = 3, .seed = 5}, 0, 0);
  EXPECT_NEAR(last.log_prob, logits[static_cast<size_t>(last.token)], 1e-12);
}

/// GEN-04: 0 is greedy whatever the seed and the filters; ties go to the lowest id.
TEST(Sampler, TemperatureZeroIsGreedy) {
  const Logits logits = {1, 5, 2, 5, 5};
  for (const uint64_t seed : {0, 1, 99}) {
    for (const double top_p : {0.0, 0.3, 1.0}) {
      EXPECT_EQ(choose(logits, {.temperature = 0, .top_p = top_p, .seed = seed}, 0, 7).token, 1);
    }
  }
}

TEST(Sampler, TinyTemperaturesApproachGreedyWithoutNaN) {
  const Logits logits = some_logits(65);
  const int32_t best = choose(logits, {.temperature = 0}, 0, 0).token;
  for (const double t : {1e-8, 1e-40, 5e-324}) {
    EXPECT_EQ(support(logits, {.temperature = t}), std::set<int32_t>{best}) << t;
  }
}

TEST(Sampler, AHugeTemperatureIsNearUniform) {
  const auto count = frequencies({-100, 0, 100, 30}, {.temperature = 1e9}, 20000);
  ASSERT_EQ(count.size(), 4U);
  for (const auto& [token, n] : count) {
    EXPECT_NEAR(n, 5000, 250) << token;
  }
}

/// GEN-03, for vocabularies of 65, 2 and 1.
TEST(Sampler, TopKBeyondTheVocabularyIsOff) {
  for (const int64_t vocab : {65, 2, 1}) {
    const Logits logits = some_logits(vocab);
    for (int64_t i = 0; i < 200; ++i) {
      const int32_t off = choose(logits, {}, 0, i).token;
      for (const int64_t k : {int64_t{0}, vocab, vocab + 1, int64_t{100000}}) {
        ASSERT_EQ(choose(logits, {.top_k = k}, 0, i).token, off) << vocab << ", " << k;
      }
      ASSERT_EQ(choose(logits, {.top_k = 1}, 0, i).token,
                choose(logits, {.temperature = 0}, 0, i).token);
      for (const double top_p : {0.0, 1e-9}) {
        ASSERT_EQ(choose(logits, {.top_p = top_p}, 0, i).token,
                  choose(logits, {.temperature = 0}, 0, i).token);
      }
      ASSERT_EQ(choose(logits, {.top_p = 1}, 0, i).token, off);
    }
  }
}

TEST(Sampler, TopKKeepsExactlyKAndTheLowestIdsAmongEqualOnes) {
  const Logits logits = {1, 3, 2, 3, 3, 0, 3};
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 3}), (std::set<int32_t>{1, 3, 4}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 5}), (std::set<int32_t>{1, 2, 3, 4, 6}));
  EXPECT_EQ(support(some_logits(65), {.temperature = 1e9, .top_k = 64}).size(), 64U);
}

TEST(Sampler, TopPKeepsTheFewestThatReachP) {
  const Logits logits = {std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};
  const auto kept = [&](double p) { return support(logits, {.temperature = 1, .top_p = p}); };
  EXPECT_EQ(kept(0.39), (std::set<int32_t>{1}));
  EXPECT_EQ(kept(0.41), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kept(0.71), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(kept(0.95), (std::set<int32_t>{0, 1, 2, 3}));
}

TEST(Sampler, MinPKeepsWhatIsLikelyEnoughBesideTheLikeliest) {
  const Logits logits = {std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};
  const auto kept = [&](double p) { return support(logits, {.temperature = 1, .min_p = p}); };
  EXPECT_EQ(kept(0.24), (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept(0.26), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(kept(0.51), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(kept(1.0), (std::set<int32_t>{1}));
}

/// Temperature first, then top-k, then top-p over what top-k left, then min-p.
TEST(Sampler, AppliesItsStepsInTheDocumentedOrder) {
  const Logits logits = {std::log(0.4), std::log(0.3), std::log(0.2), std::log(0.1)};
  // Of the first two, 4/7 = 0.571 is the likelier one's share: 0.5 is reached by it alone, though
  // it has only 0.4 of all.
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5}), (std::set<int32_t>{0}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_p = 0.5}), (std::set<int32_t>{0, 1}));
  // At temperature 0.5 the shares are squared: 0.533, 0.3, 0.133, 0.033.
  EXPECT_EQ(support(logits, {.temperature = 0.5, .top_p = 0.5}), (std::set<int32_t>{0}));
  EXPECT_EQ(support(logits, {.temperature = 0.5, .min_p = 0.3}), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, RowsAndTokensHaveStreamsOfTheirOwn) {
  const Logits logits(1000, 0.0);
  std::set<int32_t> tokens;
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t index = 0; index < 4; ++index) {
      const int32_t token = choose(logits, {.seed = 1}, row, index).token;
      EXPECT_EQ(choose(logits, {.seed = 1}, row, index).token, token);
      EXPECT_NE(choose(logits, {.seed = 2}, row, index).token, token);
      tokens.insert(token);
    }
  }
  EXPECT_GE(tokens.size(), 14U);  // 16 draws out of 1000
}

std::string options_refusal(const SamplingOptions& options) {
  try {
    check_options(options);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(Sampler, RefusesValuesWithoutMeaning) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double t : {-1.0, nan, kInf, -kInf}) {
    EXPECT_NE(options_refusal({.temperature = t}).find("--temperature"), std::string::npos) << t;
  }
  for (const double p : {-0.1, 1.5, nan}) {
    EXPECT_NE(options_refusal({.top_p = p}).find("--top-p"), std::string::npos) << p;
  }
  EXPECT_NE(options_refusal({.min_p = 2}).find("--min-p is 2, but must be from 0 to 1"),
            std::string::npos);
  EXPECT_NE(options_refusal({.top_k = -1}).find("--top-k is -1"), std::string::npos);
  EXPECT_EQ(options_refusal({}), "");
  EXPECT_EQ(options_refusal({.temperature = 1e9, .top_k = 100000, .top_p = 0, .min_p = 1}), "");
}

TEST(Sampler, NamesALogitThatIsNoNumber) {
  Logits logits = {0, 1, 2};
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), kInf}) {
    logits[1] = bad;
    try {
      choose(logits, {}, 4, 17);
      ADD_FAILURE() << "no error for " << bad;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("logit of token 1"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("new token 17 of sequence 4"), std::string::npos);
    }
  }
  EXPECT_THROW(choose(Logits{-kInf, -kInf}, {}, 0, 0), Error);
}

}  // namespace
}  // namespace headroom::infer
