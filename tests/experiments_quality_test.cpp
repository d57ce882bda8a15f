// What is measured on a trained model: sink mass, windows, low rank. Models are small and random;
// what is expected of them is worked out apart, or follows from weights that were set.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "experiments/kv_filter.h"
#include "experiments/low_rank.h"
#include "experiments/sink_mass.h"
#include "experiments/window_sinks.h"
#include "infer/block_cache.h"
#include "infer_model.h"

namespace headroom::experiments {
namespace {

using headroom::testing::kVocab;
using headroom::testing::small_config;
using headroom::testing::small_model;

const PartDone kQuiet = [](int64_t, int64_t) {};

Passages passages(int64_t count, int64_t tokens) {
  return cut_passages(headroom::testing::tokens(count * (tokens + 1)), count, tokens);
}

/// Writes to parameters whose name ends in `suffix`.
void set_parameters(const nn::GPT& model, const std::string& suffix,
                    const std::function<float(int64_t index)>& value) {
  int64_t found = 0;
  for (const nn::Parameter& p : model.parameters()) {
    if (p.name.ends_with(suffix)) {
      Tensor tensor = p.value.value();
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        tensor.data<float>()[i] = value(i);
      }
      nn::Variable(p.value).changed();
      ++found;
    }
  }
  ASSERT_GT(found, 0) << suffix;
}

std::vector<double> parameter(const nn::GPT& model, const std::string& name) {
  for (const nn::Parameter& p : model.parameters()) {
    if (p.name == name) {
      return headroom::testing::doubles(p.value.value());
    }
  }
  ADD_FAILURE() << name;
  return {};
}

// --- passages ---

TEST(Passages, AreSpacedEvenlyAndDoNotOverlap) {
  std::vector<int32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  const Passages three = cut_passages(ids, 3, 9);
  ASSERT_EQ(three.count(), 3);
  EXPECT_EQ(three.targets(), 27);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(three.ids[i].size(), 10u);
    EXPECT_EQ(three.ids[i].front(), static_cast<int32_t>(33 * i));
    EXPECT_EQ(three.ids[i].back(), static_cast<int32_t>(33 * i + 9));
  }
  EXPECT_EQ(cut_passages(ids, 50, 19).count(), 5);  // 5 passages of 20 ids are all there are
  EXPECT_EQ(cut_passages(ids, 1, 99).count(), 1);
  EXPECT_THROW(cut_passages(ids, 1, 100), InputError);
}

TEST(Passages, TheirLossIsThatOfTheUncachedLogitsWhateverTheCacheShows) {
  const auto model = small_model(small_config());
  const Passages some = passages(3, 40);
  for (const kernels::AttentionMask mask : {kernels::AttentionMask{}, {8, 0}, {8, 2}}) {
    infer::CacheSpec cache;
    cache.mask = mask;
    const PassageLoss loss = passage_loss(*model, some, cache);
    std::vector<double> expected(40, 0.0);
    for (const auto& ids : some.ids) {
      const auto logits =
          headroom::testing::whole_logits(*model, {ids.begin(), ids.end() - 1}, mask);
      for (size_t t = 0; t < 40; ++t) {
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(t) * kVocab;
        double sum = 0;
        for (int64_t v = 0; v < kVocab; ++v) {
          sum += std::exp(row[v]);
        }
        expected[t] += (std::log(sum) - row[ids[t + 1]]) / 3;
      }
    }
    ASSERT_EQ(loss.by_position.size(), 40u);
    for (size_t t = 0; t < 40; ++t) {
      EXPECT_NEAR(loss.by_position[t], expected[t], 1e-4) << t;
    }
    EXPECT_NEAR(loss.mean, std::accumulate(expected.begin(), expected.end(), 0.0) / 40, 1e-4);
    // 2 layers, K and V of 2 heads of 8 floats: 40 slots, or fewer blocks than that under a window
    EXPECT_EQ(loss.cache_bytes, 40 * 2 * 2 * 2 * 8 * 4);
  }
}

// --- sink mass ---

TEST(SinkMass, IsTheBaselineWhereEveryKeyScoresTheSame) {
  const auto model = small_model(small_config());
  set_parameters(*model, "q_proj.weight", [](int64_t) { return 0.0F; });
  const SinkMass mass = sink_mass(*model, passages(9, 12), kQuiet);
  double expected = 0;  // the mean of 1 / 2, 1 / 3, ..., 1 / 12
  for (int n = 2; n <= 12; ++n) {
    expected += 1.0 / n / 11;
  }
  ASSERT_EQ(mass.first.size(), 2u);
  ASSERT_EQ(mass.first[0].size(), 8u);
  for (size_t layer = 0; layer < 2; ++layer) {
    EXPECT_NEAR(mass.uniform[layer], expected, 1e-12);
    for (const double head : mass.first[layer]) {
      EXPECT_NEAR(head, expected, 1e-6);
    }
  }
  EXPECT_TRUE(mass.learned.empty());
  const Spread spread = spread_of(mass.first);
  EXPECT_NEAR(spread.low, expected, 1e-6);
  EXPECT_NEAR(spread.high, expected, 1e-6);
  EXPECT_NEAR(spread.mean, expected, 1e-6);
}

TEST(SinkMass, LearnedLogitTakesItsShare) {
  configs::ModelConfig config = small_config();
  config.sink = configs::SinkKind::learned;
  const auto model = small_model(config);
  set_parameters(*model, "q_proj.weight", [](int64_t) { return 0.0F; });
  set_parameters(*model, "sinks", [](int64_t head) { return 0.5F * static_cast<float>(head); });
  const SinkMass mass = sink_mass(*model, passages(2, 5), kQuiet);
  ASSERT_EQ(mass.learned.size(), 2u);
  for (size_t head = 0; head < 8; ++head) {
    const double sink = std::exp(0.5 * static_cast<double>(head));
    double learned = 0, first = 0;
    for (int keys = 2; keys <= 5; ++keys) {
      learned += sink / (keys + sink) / 4;
      first += 1 / (keys + sink) / 4;
    }
    EXPECT_NEAR(mass.learned[1][head], learned, 1e-6);
    EXPECT_NEAR(mass.first[1][head], first, 1e-6);
  }
}

TEST(SinkMass, LayerWindowHidesTokenZeroFromLateQueries) {
  configs::ModelConfig config = small_config();
  config.window = 2;
  config.window_pattern = "LG";
  const auto model = small_model(config);
  set_parameters(*model, "q_proj.weight", [](int64_t) { return 0.0F; });
  const SinkMass mass = sink_mass(*model, passages(2, 5), kQuiet);
  EXPECT_NEAR(mass.uniform[0], 0.5 / 4, 1e-12);  // only the query at 1 sees key 0, among 2
  EXPECT_NEAR(mass.first[0][3], 0.5 / 4, 1e-6);
  EXPECT_NEAR(mass.uniform[1], (1.0 / 2 + 1.0 / 3 + 1.0 / 4 + 1.0 / 5) / 4, 1e-12);
  EXPECT_NEAR(mass.first[1][3], mass.uniform[1], 1e-6);
}

/// One layer without rotation, whose attention is worked out from its weights.
TEST(SinkMass, IsTheSoftmaxOfTheScores) {
  configs::ModelConfig config = small_config(2, 16);
  config.n_layer = 1;
  config.position = configs::Position::learned;
  const auto model = small_model(config);
  const Passages one = passages(1, 7);
  const SinkMass mass = sink_mass(*model, one, kQuiet);

  const auto embed = parameter(*model, "model.embed_tokens.weight");
  const auto place = parameter(*model, "model.embed_positions.weight");
  const auto wq = parameter(*model, "model.layers.0.self_attn.q_proj.weight");
  const auto wk = parameter(*model, "model.layers.0.self_attn.k_proj.weight");
  const size_t C = 64, H = 8, D = 8;
  std::vector<std::vector<double>> normed;
  for (size_t t = 0; t < 7; ++t) {
    std::vector<double> x(C);
    double squares = 0;
    for (size_t c = 0; c < C; ++c) {
      x[c] = embed[static_cast<size_t>(one.ids[0][t]) * C + c] + place[t * C + c];
      squares += x[c] * x[c];
    }
    for (double& each : x) {
      each /= std::sqrt(squares / C + 1e-6);
    }
    normed.push_back(x);
  }
  const auto projected = [&](const std::vector<double>& w, size_t t, size_t row) {
    return std::inner_product(normed[t].begin(), normed[t].end(),
                              w.begin() + static_cast<std::ptrdiff_t>(row * C), 0.0);
  };
  for (size_t h = 0; h < H; ++h) {
    double expected = 0;
    for (size_t p = 1; p < 7; ++p) {
      std::vector<double> weights;
      for (size_t key = 0; key <= p; ++key) {
        double score = 0;
        for (size_t d = 0; d < D; ++d) {
          score += projected(wq, p, h * D + d) * projected(wk, key, h / 4 * D + d);
        }
        weights.push_back(std::exp(score / std::sqrt(8.0)));
      }
      expected += weights[0] / std::accumulate(weights.begin(), weights.end(), 0.0) / 6;
    }
    EXPECT_NEAR(mass.first[0][h], expected, 1e-4) << h;
  }
}

// --- windows ---

TEST(WindowLosses, AreFullAttentionFirstThenEachNumberOfSinks) {
  const auto model = small_model(small_config(2, 32));
  const Passages some = passages(2, 32);
  const auto losses = window_losses(*model, some, 8, {0, 4}, kQuiet);
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_EQ(losses[0].window, 0);
  EXPECT_EQ(losses[2].window, 8);
  EXPECT_EQ(losses[2].sinks, 4);
  for (size_t t = 0; t < 8; ++t) {  // no key has left the window yet
    EXPECT_NEAR(losses[1].loss.by_position[t], losses[0].loss.by_position[t], 1e-4);
  }
  EXPECT_GT(std::abs(losses[1].loss.mean - losses[0].loss.mean), 1e-3);
  EXPECT_GT(std::abs(losses[2].loss.mean - losses[1].loss.mean), 1e-3);
  EXPECT_THROW(window_losses(*model, some, 32, {0}, kQuiet), InputError);
}

// --- keys before rotation ---

configs::ModelConfig one_layer(configs::RopeStyle style) {
  configs::ModelConfig config = small_config();
  config.n_layer = 1;
  config.rope_style = style;
  return config;
}

std::unique_ptr<nn::KVCache> plain_cache(const configs::ModelConfig& config, int64_t tokens) {
  return std::make_unique<infer::BlockCache>(config, infer::BlockTable({}, tokens), 1);
}

TEST(KVFilter, SeesKeysAsTheyWereBeforeRotation) {
  for (const auto style : {configs::RopeStyle::half, configs::RopeStyle::interleaved}) {
    const configs::ModelConfig config = one_layer(style);
    const auto model = small_model(config);
    std::vector<std::vector<float>> seen;
    KVFilter filter(config, plain_cache(config, 12), [&](int64_t, Tensor& rows) {
      for (int64_t n = 0; n < rows.dim(0); ++n) {
        seen.push_back(rows.rows(n, n + 1).to_vector<float>());
      }
      return false;
    });
    const std::vector<int32_t> ids = {5, 9, 9, 5, 2, 5, 9, 5, 5, 5, 5, 5};
    headroom::testing::cached_logits(*model, filter, {ids}, {5, 3});
    ASSERT_EQ(seen.size(), 12u);
    for (const size_t other : {3, 5, 7, 11}) {  // in the first layer a token is its embedding
      for (size_t i = 0; i < seen[0].size(); ++i) {
        EXPECT_NEAR(seen[other][i], seen[0][i], 1e-4) << other << ", " << i;
      }
    }
    ASSERT_EQ(seen[0].size(), 32u);
    EXPECT_GT(std::abs(seen[1][3] - seen[0][3]) + std::abs(seen[1][20] - seen[0][20]), 1e-3);
  }
}

TEST(KVFilter, HandsOnWhatItChanged) {
  const configs::ModelConfig config = one_layer(configs::RopeStyle::half);
  const auto model = small_model(config);
  const std::vector<int32_t> ids = headroom::testing::tokens(12);
  const auto through = [&](float factor) {
    KVFilter filter(config, plain_cache(config, 12), [&](int64_t, Tensor& rows) {
      for (int64_t i = 0; i < rows.numel(); ++i) {
        rows.data<float>()[i] *= factor;
      }
      return true;
    });
    return headroom::testing::cached_logits(*model, filter, {ids}, {4})[0];
  };
  const auto expected = headroom::testing::whole_logits(*model, ids);
  const auto same = through(1.0F), doubled = through(2.0F);
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(same[i], expected[i], 2e-4);
    largest = std::max(largest, std::abs(doubled[i] - expected[i]));
  }
  EXPECT_GT(largest, 0.1);
}

// --- low rank ---

TEST(LowRank, ModelWhoseKeysAndValuesHaveThreeDirectionsNeedsRankThree) {
  const configs::ModelConfig config = small_config();
  const auto model = small_model(config);
  // Keys: the first two numbers of head 0. Values: the last number of head 1.
  const auto keep = [&](const std::string& name, auto kept_row) {
    const RandomStream stream(5, name);
    set_parameters(*model, name, [&](int64_t i) {
      const double uniform = static_cast<double>(stream.integer(static_cast<uint64_t>(i), 1000));
      return kept_row(i / 64) ? static_cast<float>(uniform / 1000 - 0.5) : 0.0F;
    });
  };
  keep("k_proj.weight", [](int64_t row) { return row < 2; });
  keep("v_proj.weight", [](int64_t row) { return row == 15; });
  const Passages training = passages(4, 24), held_out = passages(2, 30);
  const LowRank result = low_rank(*model, training, held_out, {32, 3, 1}, kQuiet);
  EXPECT_EQ(result.width, 32);
  ASSERT_EQ(result.ranks.size(), 3u);
  EXPECT_NEAR(result.ranks[0].energy, 1, 1e-9);
  EXPECT_NEAR(result.ranks[1].energy, 1, 1e-6);
  EXPECT_LT(result.ranks[2].energy, 0.99);
  EXPECT_NEAR(result.ranks[0].loss, result.full_loss, 1e-4);
  EXPECT_NEAR(result.ranks[1].loss, result.full_loss, 1e-4);
  EXPECT_GT(std::abs(result.ranks[2].loss - result.full_loss), 1e-3);
  infer::CacheSpec plain;
  EXPECT_NEAR(result.full_loss, passage_loss(*model, held_out, plain).mean, 1e-5);
}

TEST(LowRank, RefusesRanksThatAreNoneAndModelsWithoutKeysOfHeads) {
  const auto model = small_model(small_config());
  const Passages some = passages(1, 8);
  EXPECT_THROW(low_rank(*model, some, some, {0}, kQuiet), InputError);
  EXPECT_THROW(low_rank(*model, some, some, {33}, kQuiet), InputError);
  configs::ModelConfig latent = small_config();
  latent.attention = configs::AttentionKind::mla;
  EXPECT_THROW(KVFilter(latent, nullptr, nullptr), InputError);
}

/// GPT-2: 12 layers, 12 heads of 64, so 1536 numbers of a token in a layer.
TEST(LowRank, CountsWhatTheQueryPays) {
  configs::ModelConfig gpt2;
  gpt2.n_layer = 12;
  gpt2.n_head = gpt2.n_kv_head = 12;
  gpt2.n_embd = 768;
  const RankCost cost = rank_cost(gpt2, 256);
  EXPECT_EQ(cost.cache_bytes, 12 * 256 * 4);
  EXPECT_EQ(cost.basis_bytes, 12 * 1536 * 256 * 4);
  EXPECT_EQ(cost.flop_full, 12 * 4 * 12 * 64);
  EXPECT_EQ(cost.flop_rebuilt, 12 * (2 * 256 * 1536 + 4 * 12 * 64));
  EXPECT_EQ(cost.flop_absorbed, 12 * 4 * 12 * 256);
  EXPECT_EQ(usual_ranks(1536), (std::vector<int64_t>{1536, 768, 512, 384, 256, 192, 128, 96}));
}

}  // namespace
}  // namespace headroom::experiments
