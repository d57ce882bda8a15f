// Speculative decoding: greedily the very tokens of plain decoding; sampled, the same distribution,
// which a wrong rule of acceptance would not give.
#include "infer/speculate.h"

#include <boost/math/distributions/chi_squared.hpp>

#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::Generated;
using infer::GenerateOptions;
using infer::Judgement;
using infer::Sequences;
using Tokens = std::vector<int32_t>;

const std::vector<std::string> kDraftCaches = {"static", "none", "static,window=20",
                                               "static,window=20,sinks=3"};

/// A smaller model that often disagrees.
std::unique_ptr<nn::GPT> small_draft(int64_t block_size, int64_t vocab = kVocab) {
  auto config = small_config(1, block_size);
  config.n_layer = 1;
  return small_model(config, DType::f64, vocab);
}

GenerateOptions with_draft(GenerateOptions how, int64_t draft_tokens) {
  how.draft_tokens = draft_tokens;
  return how;
}

Generated speculated(const nn::GPT& model, const nn::GPT& draft, const Sequences& prompts,
                     const GenerateOptions& how) {
  return infer::speculate(model, draft, prompts, how, [](int64_t, int32_t) { return true; });
}

TEST(Speculation, GreedyTokensAreThoseOfPlainDecoding) {
  for (const int64_t n_kv_head : {8, 2, 1}) {
    const auto model = small_model(small_config(n_kv_head, 48), DType::f64);
    const auto draft = small_draft(48);
    const Sequences prompts = {tokens(5, 1), tokens(60, 2), tokens(1, 3)};
    for (const std::string& cache : kDraftCaches) {
      const int64_t count = cache == "none" ? 12 : 90;
      const auto expected = run(*model, prompts, greedy(count, cache));
      for (const int64_t ahead : {1, 4, 9}) {
        const auto got =
            speculated(*model, *draft, prompts, with_draft(greedy(count, cache), ahead));
        EXPECT_EQ(got.tokens, expected.tokens) << cache << ", " << ahead << " ahead";
        for (size_t row = 0; row < prompts.size(); ++row) {
          EXPECT_LE(error(got.log_probs[row], expected.log_probs[row]), 1e-10);
        }
        EXPECT_LT(got.stats.accepted, got.stats.drafted);
        // Every token but the first of each row was accepted or added by a judgement.
        EXPECT_EQ(got.stats.accepted + got.stats.judged, 3 * (count - 1));
      }
    }
  }
}

/// A draft that is the model is always right, and a pass of the model gives draft_tokens + 1.
TEST(Speculation, AcceptsEverythingFromTheModelItself) {
  const auto model = small_model(small_config(2, 128), DType::f64);
  for (const double temperature : {0.0, 1.0}) {
    const auto got = speculated(*model, *model, {tokens(7)},
                                with_draft(greedy(1 + 5 * 8, "static", temperature), 4));
    EXPECT_EQ(got.stats.accepted, got.stats.drafted);
    EXPECT_EQ(got.stats.judged, 8);
    EXPECT_EQ(got.stats.work.passes, 1 + 8);
  }
}

TEST(Speculation, RowsThatEndChangeNothingForTheOthers) {
  const auto model = small_model(small_config(2, 100), DType::f64);
  const auto draft = small_draft(100);
  const Sequences prompts = {tokens(17, 1), tokens(1, 2), tokens(5, 3), tokens(30, 4)};
  const std::vector<size_t> ends = {1, 3, 10, 1000};
  std::vector<size_t> seen(4, 0);
  const auto got = infer::speculate(
      *model, *draft, prompts, with_draft(greedy(30), 3), [&](int64_t row, int32_t) {
        return ++seen[static_cast<size_t>(row)] < ends[static_cast<size_t>(row)];
      });
  const auto expected = run(*model, prompts, greedy(30)).tokens;
  for (size_t row = 0; row < 4; ++row) {
    const auto count = std::min<size_t>(ends[row], 30);
    EXPECT_EQ(got.tokens[row], Tokens(expected[row].begin(),
                                      expected[row].begin() + static_cast<std::ptrdiff_t>(count)));
  }
}

/// What comes out when the guess is drawn from `draft`: over a grid of the two uniform numbers.
template <class Rule>
std::vector<double> distribution(const std::vector<double>& model, const std::vector<double>& draft,
                                 const Rule& rule) {
  constexpr int kGrid = 400;
  std::vector<double> out(model.size(), 0.0);
  for (size_t guess = 0; guess < draft.size(); ++guess) {
    for (int i = 0; i < kGrid && draft[guess] > 0; ++i) {
      for (int j = 0; j < kGrid; ++j) {
        const Judgement j2 =
            rule(model, draft, static_cast<int32_t>(guess), (i + 0.5) / kGrid, (j + 0.5) / kGrid);
        out[static_cast<size_t>(j2.token)] += draft[guess] / (kGrid * kGrid);
      }
    }
  }
  return out;
}

double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

const std::vector<std::pair<std::vector<double>, std::vector<double>>> kPairs = {
    {{0.5, 0.3, 0.2, 0.0}, {0.1, 0.2, 0.3, 0.4}},
    {{0.25, 0.25, 0.25, 0.25}, {0.7, 0.1, 0.1, 0.1}},
    {{0.0, 0.0, 1.0, 0.0}, {0.4, 0.3, 0.2, 0.1}},
    {{0.6, 0.4, 0.0, 0.0}, {0.0, 0.0, 0.5, 0.5}},
    {{0.1, 0.2, 0.3, 0.4}, {0.1, 0.2, 0.3, 0.4}}};

TEST(Judging, GivesTheModelsDistribution) {
  for (const auto& [model, draft] : kPairs) {
    EXPECT_LE(furthest(distribution(model, draft, infer::judge), model), 5e-3);
  }
}

/// The test above would notice: accepting whatever is likely enough, and drawing from the model
/// instead of from what the draft left.
TEST(Judging, OtherRulesGiveAnotherDistribution) {
  const auto half = [](const std::vector<double>& model, const std::vector<double>& draft,
                       int32_t token, double, double draw_at) {
    const auto t = static_cast<size_t>(token);
    return infer::judge(model, draft, token, model[t] > 0.5 * draft[t] ? 0.0 : 1.0, draw_at);
  };
  const auto again = [](const std::vector<double>& model, const std::vector<double>& draft,
                        int32_t token, double accept_at, double draw_at) {
    const Judgement right = infer::judge(model, draft, token, accept_at, draw_at);
    return right.accepted ? right : Judgement{false, infer::draw(model, draw_at)};
  };
  EXPECT_GT(furthest(distribution(kPairs[0].first, kPairs[0].second, half), kPairs[0].first), 0.05);
  EXPECT_GT(furthest(distribution(kPairs[0].first, kPairs[0].second, again), kPairs[0].first),
            0.05);
}

/// The probabilities of the next token at a temperature, of the k likeliest.
std::vector<double> by_hand(const nn::GPT& model, const Tokens& ids, double temperature, size_t k) {
  const auto logits = whole_logits(model, ids);
  std::vector<double> last(logits.end() - model.vocab_size(), logits.end());
  std::vector<double> sorted = last;
  std::sort(sorted.rbegin(), sorted.rend());
  double sum = 0;
  for (double& x : last) {
    x = x >= sorted[k - 1] ? std::exp(x / temperature) : 0;
    sum += x;
  }
  for (double& x : last) {
    x /= sum;
  }
  return last;
}

/// p of Pearson's chi-squared test that 3-token texts were drawn as the model draws them.
template <class Draw>
double p_value(const nn::GPT& model, const Tokens& prompt, double temperature, size_t k,
               const Draw& draw_texts) {
  const auto V = static_cast<size_t>(model.vocab_size());
  std::vector<double> expected(V * V * V, 1.0), seen(V * V * V, 0.0);
  for (size_t text = 0; text < expected.size(); ++text) {
    Tokens ids = prompt;
    for (const size_t token : {text / V / V, text / V % V, text % V}) {
      expected[text] *= by_hand(model, ids, temperature, k)[token];
      ids.push_back(static_cast<int32_t>(token));
    }
  }
  double draws = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    for (const Tokens& text : draw_texts(Sequences(500, prompt), seed)) {
      const auto at = [&text](size_t i) { return static_cast<size_t>(text.at(i)); };
      seen[at(0) * V * V + at(1) * V + at(2)] += 1;
      draws += 1;
    }
  }
  double statistic = 0, other_expected = 0, other_seen = 0;
  int cells = 0;
  for (size_t text = 0; text < expected.size(); ++text) {
    if (expected[text] * draws < 8) {  // too rare for a cell of their own
      other_expected += expected[text] * draws;
      other_seen += seen[text];
      continue;
    }
    statistic += std::pow(seen[text] - expected[text] * draws, 2) / (expected[text] * draws);
    ++cells;
  }
  statistic += std::pow(other_seen - other_expected, 2) / std::max(other_expected, 1.0);
  return boost::math::cdf(
      boost::math::complement(boost::math::chi_squared_distribution<double>(cells), statistic));
}

TEST(Speculation, DrawsFromTheModelsDistribution) {
  constexpr double kTemperature = 2.0;
  constexpr size_t kTopK = 4;
  const auto model = small_model(small_config(2, 32), DType::f64, 5);
  const auto draft = small_draft(32, 5);
  const Tokens prompt = {1, 4, 2};
  const auto options = [](uint64_t seed) {
    GenerateOptions how = greedy(3, "static", kTemperature);
    how.sampling.top_k = kTopK;
    how.sampling.seed = seed;
    return how;
  };
  int64_t accepted = 0, drafted = 0;
  const double p =
      p_value(*model, prompt, kTemperature, kTopK, [&](const Sequences& prompts, uint64_t seed) {
        const auto got = speculated(*model, *draft, prompts, with_draft(options(seed), 2));
        accepted += got.stats.accepted;
        drafted += got.stats.drafted;
        return got.tokens;
      });
  EXPECT_GT(p, 0.01);
  EXPECT_GT(accepted, drafted / 10) << "both ways through the rule must be taken";
  EXPECT_LT(accepted, drafted * 9 / 10);
  // The same test refuses the draft's own texts.
  EXPECT_LT(p_value(*model, prompt, kTemperature, kTopK,
                    [&](const Sequences& prompts, uint64_t seed) {
                      return run(*draft, prompts, options(seed)).tokens;
                    }),
            1e-6);
}

TEST(Speculation, RefusesADraftOfOtherTokens) {
  const auto model = small_model(small_config(2, 32), DType::f64);
  const auto draft = small_draft(32, kVocab + 1);
  EXPECT_THROW(speculated(*model, *draft, {tokens(3)}, with_draft(greedy(5), 2)), Error);
  EXPECT_THROW(speculated(*model, *model, {tokens(3)}, greedy(5)), InputError);
}

}  // namespace
}  // namespace headroom::testing
