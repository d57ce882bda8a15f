// Beam search against exhaustive search, against greedy decoding, and against a second one that
// recomputes everything: with every cache the same sequences and scores (GEN-11).
#include "infer/beam.h"

#include "infer_model.h"

namespace headroom::testing {
namespace {

using infer::Beams;
using infer::GenerateOptions;
using infer::IsComplete;
using infer::Sequences;
using Tokens = std::vector<int32_t>;

const std::vector<std::string> kBeamCaches = {"none", "static", "static,window=20",
                                              "static,window=20,sinks=3"};

const IsComplete kNever = [](int64_t, std::span<const int32_t>) { return false; };

GenerateOptions with_beams(int64_t beams, int64_t count, const std::string& cache = "static") {
  GenerateOptions how = greedy(count, cache);
  how.beams = beams;
  return how;
}

Beams search(const nn::GPT& model, const Sequences& prompts, const GenerateOptions& how,
             const IsComplete& is_complete = kNever) {
  return infer::beam_search(model, prompts, how, is_complete, [] { return true; });
}

/// Log-probabilities (V) of the token after `ids`.
std::vector<double> next_log_probs(const nn::GPT& model, const Tokens& ids,
                                   kernels::AttentionMask mask = {}) {
  const auto logits = whole_logits(model, ids, mask);
  std::vector<double> last(logits.end() - model.vocab_size(), logits.end());
  double sum = 0;
  for (const double x : last) {
    sum += std::exp(x);
  }
  for (double& x : last) {
    x -= std::log(sum);
  }
  return last;
}

/// The likeliest of all continuations, and its log-probability.
std::pair<Tokens, double> likeliest(const nn::GPT& model, const Tokens& ids, int64_t count) {
  if (count == 0) {
    return {{}, 0.0};
  }
  const auto log_probs = next_log_probs(model, ids);
  std::pair<Tokens, double> best{{}, -INFINITY};
  for (size_t token = 0; token < log_probs.size(); ++token) {
    Tokens longer = ids;
    longer.push_back(static_cast<int32_t>(token));
    auto [rest, sum] = likeliest(model, longer, count - 1);
    if (log_probs[token] + sum > best.second) {
      rest.insert(rest.begin(), static_cast<int32_t>(token));
      best = {rest, log_probs[token] + sum};
    }
  }
  return best;
}

TEST(BeamSearch, WithEnoughBeamsIsExhaustive) {
  const auto model = small_model(small_config(2, 32), DType::f64, 4);
  bool greedy_is_enough = true;
  for (const Tokens& prompt : {Tokens{1, 3, 0}, Tokens{2}, Tokens{0, 1}, Tokens{3, 3, 1, 2}}) {
    const auto [tokens, sum] = likeliest(*model, prompt, 5);
    const auto found = search(*model, {prompt}, with_beams(1024, 5));
    EXPECT_EQ(found.best.tokens[0], tokens);
    EXPECT_NEAR(found.scores[0], sum / 5, 1e-10);
    greedy_is_enough = greedy_is_enough && run(*model, {prompt}, greedy(5)).tokens[0] == tokens;
  }
  EXPECT_FALSE(greedy_is_enough) << "the test needs a text that greedy decoding misses";
}

TEST(BeamSearch, WithOneBeamIsGreedy) {
  const IsComplete below_five = [](int64_t, std::span<const int32_t> tokens) {
    return tokens.back() < 5;
  };
  for (const int64_t n_kv_head : {8, 2, 1}) {
    const auto model = small_model(small_config(n_kv_head, 64), DType::f64);
    const Sequences prompts = {tokens(9, 1), tokens(30, 2)};
    for (const std::string& cache : kBeamCaches) {
      const auto expected = infer::generate(*model, prompts, greedy(25, cache),
                                            [](int64_t, int32_t token) { return token >= 5; });
      const auto found = search(*model, prompts, with_beams(1, 25, cache), below_five);
      EXPECT_EQ(found.best.tokens, expected.tokens) << cache;
      for (size_t row = 0; row < prompts.size(); ++row) {
        EXPECT_LE(error(found.best.log_probs[row], expected.log_probs[row]), 1e-10);
      }
    }
  }
}

/// The rules of infer/beam.h written down once more, plainly, over whole sequences.
struct Plain {
  struct Kept {
    Tokens tokens;
    double sum;
  };
  const nn::GPT& model;
  kernels::AttentionMask mask;
  size_t beams;
  double penalty;
  int64_t parent_changes = 0;

  double score(const Kept& k) const {
    return k.sum / std::pow(static_cast<double>(k.tokens.size()), penalty);
  }

  Kept run(const Tokens& prompt, int64_t count, const IsComplete& is_complete) {
    std::vector<Kept> live = {{{}, 0.0}}, complete;
    const auto by_score = [this](const Kept& a, const Kept& b) { return score(a) > score(b); };
    for (int64_t step = 0; step < count; ++step) {
      std::vector<std::pair<Kept, size_t>> all;
      for (size_t i = 0; i < live.size(); ++i) {
        Tokens ids = prompt;
        ids.insert(ids.end(), live[i].tokens.begin(), live[i].tokens.end());
        const auto log_probs = next_log_probs(model, ids, mask);
        for (size_t token = 0; token < log_probs.size(); ++token) {
          Kept longer = live[i];
          longer.tokens.push_back(static_cast<int32_t>(token));
          longer.sum += log_probs[token];
          all.emplace_back(longer, i);
        }
      }
      std::stable_sort(all.begin(), all.end(),
                       [](const auto& a, const auto& b) { return a.first.sum > b.first.sum; });
      live.clear();
      for (size_t rank = 0; rank < 2 * beams && rank < all.size() && live.size() < beams; ++rank) {
        if (!is_complete(0, all[rank].first.tokens)) {
          parent_changes += all[rank].second != live.size() && step > 0 ? 1 : 0;
          live.push_back(all[rank].first);
        } else if (rank < beams) {
          complete.push_back(all[rank].first);
        }
      }
      std::stable_sort(complete.begin(), complete.end(), by_score);
      complete.resize(std::min(complete.size(), beams));
      if (live.empty() || (complete.size() == beams && score(complete.back()) >= score(live[0]))) {
        return complete[0];
      }
    }
    complete.insert(complete.end(), live.begin(), live.end());
    std::stable_sort(complete.begin(), complete.end(), by_score);
    return complete[0];
  }
};

TEST(BeamSearch, FollowsItsRulesWithEveryCache) {
  const IsComplete sometimes = [](int64_t, std::span<const int32_t> tokens) {
    return tokens.back() % 9 == 2 && tokens.size() > 2;
  };
  for (const int64_t n_kv_head : {8, 2, 1}) {
    const auto model = small_model(small_config(n_kv_head, 100), DType::f64);
    const Sequences prompts = {tokens(70, 1), tokens(6, 2)};
    for (const std::string& cache : kBeamCaches) {
      for (const auto& [beams, penalty] : {std::pair{2, 1.0}, std::pair{4, 0.0}}) {
        auto how = with_beams(beams, 12, cache);
        how.length_penalty = penalty;
        const auto found = search(*model, prompts, how, sometimes);
        Plain plain{*model, how.cache.mask, static_cast<size_t>(beams), penalty};
        for (size_t row = 0; row < prompts.size(); ++row) {
          const auto expected = plain.run(prompts[row], 12, sometimes);
          EXPECT_EQ(found.best.tokens[row], expected.tokens) << cache << ", beams " << beams;
          EXPECT_NEAR(found.scores[row], plain.score(expected), 1e-9) << cache;
        }
        EXPECT_GT(plain.parent_changes, 5) << "the test needs beams that change parents";
      }
    }
  }
}

/// A prompt alone and beside another gives the same.
TEST(BeamSearch, TreatsEachPromptAsIfAlone) {
  const auto model = small_model(small_config(2, 100), DType::f64);
  const Sequences prompts = {tokens(20, 1), tokens(3, 2), tokens(64, 3)};
  const auto together = search(*model, prompts, with_beams(3, 15));
  for (size_t row = 0; row < prompts.size(); ++row) {
    const auto alone = search(*model, {prompts[row]}, with_beams(3, 15));
    EXPECT_EQ(together.best.tokens[row], alone.best.tokens[0]);
    EXPECT_NEAR(together.scores[row], alone.scores[0], 1e-10);
  }
}

/// Beams cost less than caches of their own: a prompt of 200 tokens has 3 whole blocks, which are
/// there once.
TEST(BeamSearch, SharesThePromptsBlocks) {
  const auto config = small_config(2, 1000);
  const auto model = small_model(config);
  auto how = with_beams(4, 30);
  how.dtype = DType::f32;
  const auto stats = search(*model, {tokens(200)}, how).best.stats;
  constexpr int64_t kSlot = 2 * 2 * 2 * 8 * 4;
  EXPECT_EQ(stats.cache_bytes_held, (4 * 230 - 3 * 3 * 64) * kSlot);
  EXPECT_EQ(infer::plan_generation(config, {200}, how).cache_bytes, stats.cache_bytes_held);
  EXPECT_LE(stats.cache_bytes_most, stats.cache_bytes_held);
  EXPECT_GE(stats.cache_bytes_most, 230 * kSlot);
}

TEST(BeamSearch, RefusesNoBeams) {
  const auto model = small_model(small_config(2));
  EXPECT_THROW(search(*model, {tokens(3)}, with_beams(0, 5)), InputError);
}

TEST(BeamSearch, GivesNothingWhenNothingIsAskedFor) {
  const auto model = small_model(small_config(2), DType::f64);
  EXPECT_TRUE(search(*model, {tokens(3)}, with_beams(2, 0)).best.tokens[0].empty());
}

}  // namespace
}  // namespace headroom::testing
