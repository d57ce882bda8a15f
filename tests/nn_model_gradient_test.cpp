// Gradients of whole models by finite differences in float64: what a test of single operators can't
// see is how they are put together.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "configs/rules.h"
#include "nn/gpt.h"

namespace headroom::testing {
namespace {

constexpr int64_t kVocab = 11;
constexpr int64_t kTokens = 9;

configs::ModelConfig tiny() {
  configs::ModelConfig model;
  model.n_layer = 2;
  model.n_head = 4;
  model.n_kv_head = 2;
  model.n_embd = 12;
  model.given_head_dim = 4;
  model.given_n_ff = 8;
  model.block_size = kTokens;
  return model;
}

/// Every parameter starts at random numbers that matter: sinks and norm weights too.
void fill(const nn::GPT& model) {
  for (const nn::Parameter& p : model.parameters()) {
    Tensor value = p.value.value();
    fill_normal(value, RandomStream(2, p.name), 0.4);
    nn::Variable(p.value).changed();
  }
}

Tensor ids(const std::string& name) {
  std::vector<int32_t> values;
  for (uint64_t i = 0; i < static_cast<uint64_t>(kTokens); ++i) {
    values.push_back(static_cast<int32_t>(RandomStream(4, name).integer(i, kVocab)));
  }
  return Tensor::from(values, {1, kTokens});
}

/// Compares some elements of every parameter's gradient with central differences of the loss.
void expect_model_gradient(const configs::ModelConfig& config) {
  configs::check_model(config);
  const nn::GPT model(config, kVocab, nn::Scope{.seed = 1, .dtype = DType::f64});
  fill(model);
  const Tensor tokens = ids("tokens"), targets = ids("targets");
  const nn::Pass pass{.dtype = DType::f64};
  model.loss(tokens, targets, pass).backward();
  const autograd::NoGrad no_grad;
  for (const nn::Parameter& p : model.parameters()) {
    nn::Variable parameter = p.value;
    ASSERT_TRUE(parameter.grad().defined()) << p.name;
    double* x = Tensor(parameter.value()).data<double>();
    const int64_t count = parameter.value().numel(), step = std::max<int64_t>(1, count / 7);
    for (int64_t i = 0; i < count; i += step) {
      const double before = x[i], h = 1e-6;
      const auto loss_at = [&](double value) {
        x[i] = value;
        parameter.changed();
        return model.loss(tokens, targets, pass).value().item();
      };
      const double expected = (loss_at(before + h) - loss_at(before - h)) / (2 * h);
      loss_at(before);
      EXPECT_NEAR(parameter.grad().data<double>()[i], expected, 1e-7)
          << p.name << ", element " << i;
    }
  }
}

TEST(ModelGradient, GroupedQueryAttention) { expect_model_gradient(tiny()); }

TEST(ModelGradient, LearnedSinks) {
  configs::ModelConfig model = tiny();
  model.sink = configs::SinkKind::learned;
  expect_model_gradient(model);
}

TEST(ModelGradient, WindowsInSomeLayersWithSinksOfBothKinds) {
  configs::ModelConfig model = tiny();
  model.window = 3;
  model.window_pattern = "LG";
  model.sinks = 1;
  model.sink = configs::SinkKind::learned;
  model.qk_norm = true;
  expect_model_gradient(model);
}

TEST(ModelGradient, LatentAttention) {
  configs::ModelConfig model = tiny();
  model.n_kv_head = 4;
  model.attention = configs::AttentionKind::mla;
  model.given_kv_rank = 5;
  expect_model_gradient(model);
  model.qk_norm = true;
  model.sink = configs::SinkKind::learned;
  model.window = 4;
  model.rope_style = configs::RopeStyle::interleaved;
  expect_model_gradient(model);
  model.position = configs::Position::learned;
  expect_model_gradient(model);
}

/// The hidden states of `tokens`, as numbers.
std::vector<double> hidden(const nn::GPT& model, const Tensor& tokens,
                           kernels::AttentionMask mask = {}) {
  const autograd::NoGrad no_grad;
  return model.hidden(tokens, {.dtype = DType::f64, .mask = mask}).value().to_vector<double>();
}

TEST(LearnedSinks, AreDrawnAsZerosAndGetNoWeightDecay) {
  configs::ModelConfig config = tiny();
  config.sink = configs::SinkKind::learned;
  const nn::GPT model(config, kVocab, nn::Scope{.seed = 1});
  int64_t found = 0;
  for (const nn::Parameter& p : model.parameters()) {
    if (p.name.ends_with("self_attn.sinks")) {
      ++found;
      EXPECT_EQ(p.value.shape(), Shape{4});  // one axis: the optimizer decays matrices only
      EXPECT_EQ(p.value.value().to_vector<float>(), std::vector<float>(4, 0.0F));
    }
  }
  EXPECT_EQ(found, 2);
}

TEST(Windows, OfTheModelEqualThoseOfAPassWhereEveryLayerHasThem) {
  configs::ModelConfig local = tiny();
  local.position = configs::Position::learned;  // queries are not turned for the pass's sinks
  const nn::GPT plain(local, kVocab, nn::Scope{.seed = 1, .dtype = DType::f64});
  local.window = 3;
  local.sinks = 2;
  const nn::GPT windowed(local, kVocab, nn::Scope{.seed = 1, .dtype = DType::f64});
  fill(plain);
  fill(windowed);
  const Tensor tokens = ids("tokens");
  const auto expected = hidden(plain, tokens, {.window = 3, .sinks = 2});
  EXPECT_EQ(hidden(windowed, tokens), expected);
  EXPECT_NE(hidden(plain, tokens), expected);
  // A wider window around it changes nothing; a narrower one wins.
  EXPECT_EQ(hidden(windowed, tokens, {.window = 4, .sinks = 0}), expected);
  EXPECT_EQ(hidden(windowed, tokens, {.window = 2, .sinks = 1}),
            hidden(plain, tokens, {.window = 2, .sinks = 1}));
}

TEST(Windows, OfTheModelMeetSinksAtTheirTrueDistance) {
  configs::ModelConfig config = tiny();
  config.window = 3;
  config.sinks = 2;
  const nn::Pass plain{.dtype = DType::f64};
  EXPECT_FALSE(nn::positions(config, 1, kTokens, plain, kCpu).sink_angles.defined());
  config.window_pattern = "LG";
  const nn::Pass around{.dtype = DType::f64, .mask = {.window = 5, .sinks = 1}};
  EXPECT_TRUE(nn::positions(config, 1, kTokens, around, kCpu).sink_angles.defined());
  const nn::LayerMask first = nn::layer_mask(config, 0, around),
                      second = nn::layer_mask(config, 1, around);
  EXPECT_TRUE(first.own);
  EXPECT_EQ(first.mask.window, 3);
  EXPECT_EQ(first.mask.sinks, 2);
  EXPECT_FALSE(second.own);
  EXPECT_EQ(second.mask.window, 5);
  EXPECT_EQ(second.mask.sinks, 1);
  EXPECT_TRUE(nn::layer_mask(config, 0, first.mask).own);  // applied to its own result
}

TEST(Windows, InOneLayerLetTheOthersSeeEverything) {
  configs::ModelConfig config = tiny();
  const nn::GPT plain(config, kVocab, nn::Scope{.seed = 1, .dtype = DType::f64});
  config.window = 2;
  config.window_pattern = "GL";
  const nn::GPT mixed(config, kVocab, nn::Scope{.seed = 1, .dtype = DType::f64});
  fill(plain);
  fill(mixed);
  // The first token reaches the last one through the global layer, and through no local one.
  const auto reaches = [](const nn::GPT& model) {
    Tensor tokens = ids("tokens").clone();
    const auto before = hidden(model, tokens);
    tokens.data<int32_t>()[0] = (tokens.data<int32_t>()[0] + 1) % kVocab;
    const auto after = hidden(model, tokens);
    return !std::equal(before.end() - 12, before.end(), after.end() - 12);
  };
  EXPECT_TRUE(reaches(plain));
  EXPECT_TRUE(reaches(mixed));
  config.window_pattern = "L";
  const nn::GPT local(config, kVocab, nn::Scope{.seed = 1, .dtype = DType::f64});
  fill(local);
  EXPECT_FALSE(reaches(local));
}

}  // namespace
}  // namespace headroom::testing
