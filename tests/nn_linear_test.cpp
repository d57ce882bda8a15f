// Layers that inference multiplies from stored weights: what is stored, what it costs in exactness,
// and what refuses to go together.
#include <gtest/gtest.h>

#include <numeric>

#include "golden.h"
#include "nn/gpt.h"

namespace headroom::testing {
namespace {

using autograd::NoGrad;
using autograd::Variable;

configs::ModelConfig config(configs::MlpKind mlp = configs::MlpKind::gelu) {
  configs::ModelConfig model;
  model.n_layer = 2;
  model.n_head = 4;
  model.n_kv_head = 2;
  model.n_embd = 32;
  model.given_n_ff = 48;
  model.mlp = mlp;
  model.bias = configs::Bias::all;
  return model;
}

/// Bytes of the matrices of config(), each element taking `element`, and `extra` for each output.
int64_t matrix_bytes(int64_t element, int64_t extra, bool gate, int64_t vocab) {
  int64_t sum = vocab * (32 * element + extra);
  for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{
           {32, 32}, {16, 32}, {16, 32}, {32, 32}, {48, 32}, {gate ? 48 : 0, 32}, {32, 48}}) {
    sum += 2 * out * (in * element + extra);
  }
  return sum;
}

Tensor logits(const nn::GPT& model, DType activations = DType::f32) {
  const Tensor tokens = Tensor::from(std::vector<int32_t>{3, 1, 4, 1, 5}, {1, 5});
  const Variable hidden = model.hidden(tokens, {.dtype = activations});
  return model.head(hidden.reshape({5, 32})).value();
}

/// Biases start as zeros, with which nothing shows.
TEST(Linear, AddsItsBiasHoweverItMultiplies) {
  for (const int64_t rows : {3, 40}) {
    nn::Linear layer(nn::Scope{.seed = 5}, 17, 65, true, 0.02);
    std::vector<float> bias(65);
    std::iota(bias.begin(), bias.end(), -30.0F);
    Tensor(layer.parameters().back().value.value()).copy_from(Tensor::from(bias, {65}));
    const auto expect_bias = [&](DType activations) {
      const Tensor x = Tensor::zeros({rows, 17}, activations);
      const std::vector<double> y = to_doubles(layer.forward(Variable(x)).value());
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], bias[i % 65]);
    };
    for (const DType activations : {DType::f32, DType::bf16}) {
      expect_bias(activations);
      for (const DType stored : {DType::f32, DType::bf16, DType::i8}) {
        layer.store(stored);
        const NoGrad no_grad;
        expect_bias(activations);
      }
    }
  }
}

TEST(StoredWeights, OfEveryTypeAreNearTheFloatOnes) {
  for (const configs::MlpKind mlp : {configs::MlpKind::gelu, configs::MlpKind::swiglu}) {
    nn::GPT model(config(mlp), 40, nn::Scope{.seed = 5});
    const NoGrad no_grad;
    const Tensor plain = logits(model);
    model.store_weights(DType::f32);
    EXPECT_EQ(max_relative_error(logits(model), plain), 0);
    // A bf16 weight is wrong by 2^-9 of itself at most, an 8-bit one by 1/254 of its row's largest,
    // which is about three times a typical one. The errors of a sum's terms are independent, so
    // that the sums are relatively as near, and there are 9 products in a row.
    model.store_weights(DType::bf16);
    const double bf16_error = max_relative_error(logits(model), plain);
    EXPECT_GT(bf16_error, 1e-5);
    EXPECT_LE(bf16_error, 9 * 0x1p-9);
    model.store_weights(DType::i8);
    const double i8_error = max_relative_error(logits(model), plain);
    EXPECT_GT(i8_error, bf16_error);
    EXPECT_LE(i8_error, 9 * 3.0 / 254);
  }
}

TEST(StoredWeights, AreWhatAPassReads) {
  for (const configs::MlpKind mlp : {configs::MlpKind::gelu, configs::MlpKind::swiglu}) {
    nn::GPT model(config(mlp), 40, nn::Scope{.seed = 5});
    const bool gate = mlp == configs::MlpKind::swiglu;
    EXPECT_EQ(model.weight_bytes(DType::f32), matrix_bytes(4, 0, gate, 40));
    // Logits are too fine for bf16, so the head keeps f32 until it is told otherwise.
    EXPECT_EQ(model.weight_bytes(DType::bf16), matrix_bytes(2, 0, gate, 40) + 40 * 32 * 2);
    model.store_weights(DType::bf16);
    EXPECT_EQ(model.weight_bytes(DType::f32), matrix_bytes(2, 0, gate, 40));
    model.store_weights(DType::i8);
    EXPECT_EQ(model.weight_bytes(DType::f32), matrix_bytes(1, 4, gate, 40));
  }
}

TEST(StoredWeights, LeaveTrainingAsItWas) {
  nn::GPT model(config(), 40, nn::Scope{.seed = 5});
  const Tensor before = logits(model);
  model.store_weights(DType::i8);
  EXPECT_EQ(max_relative_error(logits(model), before), 0);
}

TEST(StoredWeights, WorkUnderActivationsInBf16) {
  nn::GPT model(config(), 40, nn::Scope{.seed = 5});
  const NoGrad no_grad;
  const Tensor plain = logits(model);
  for (const DType type : {DType::f32, DType::bf16, DType::i8}) {
    model.store_weights(type);
    const Tensor stored = logits(model, DType::bf16);
    EXPECT_EQ(stored.dtype(), DType::f32);
    EXPECT_LE(max_relative_error(stored, plain), 9 * (3.0 / 254 + 0x1p-8)) << name_of(type);
  }
}

TEST(StoredWeights, OfWeightsThatHaveChangedAreRefused) {
  nn::GPT model(config(), 40, nn::Scope{.seed = 5});
  model.store_weights(DType::i8);
  const NoGrad no_grad;
  logits(model);
  for (const nn::Parameter& p : model.parameters()) Variable(p.value).changed();
  EXPECT_THROW(logits(model), Error);
  model.store_weights(DType::i8);
  logits(model);
}

TEST(StoredWeights, AreOfFloatModelsOnly) {
  nn::GPT model(config(), 40, nn::Scope{.seed = 5, .dtype = DType::f64});
  EXPECT_THROW(model.store_weights(DType::i8), Error);
}

}  // namespace
}  // namespace headroom::testing
