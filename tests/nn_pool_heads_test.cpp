// Pooling KV heads: which rows are averaged, and that heads that were alike lose nothing.
#include "nn/pool_heads.h"

#include <gtest/gtest.h>

#include "golden.h"

namespace headroom::testing {
namespace {

configs::ModelConfig config(int64_t n_kv_head) {
  configs::ModelConfig model;
  model.n_layer = 2;
  model.n_head = 8;
  model.n_kv_head = n_kv_head;
  model.n_embd = 32;
  model.given_n_ff = 48;
  model.bias = configs::Bias::all;
  model.norm = configs::Norm::layernorm;
  model.qk_norm = true;
  return model;
}

nn::GPT model_of(int64_t n_kv_head) { return {config(n_kv_head), 13, nn::Scope{.seed = 5}}; }

Tensor value(const nn::GPT& model, const std::string& name) {
  for (const nn::Parameter& p : model.parameters()) {
    if (p.name == name) return p.value.value();
  }
  throw Error("no parameter " + name);
}

void fill_unevenly(const nn::GPT& model) {
  for (const nn::Parameter& p : model.parameters()) {
    Tensor x = p.value.value();
    fill_normal(x, RandomStream(3, p.name), 0.5);
    nn::Variable(p.value).changed();
  }
}

Tensor logits_of(const nn::GPT& model) {
  const autograd::NoGrad no_grad;
  const Tensor tokens = Tensor::from(std::vector<int32_t>{3, 1, 4, 1, 5, 9, 2}, {1, 7});
  return model.head(model.hidden(tokens, {}).reshape({7, 32})).value();
}

TEST(PoolHeads, EachNewHeadIsTheMeanOfThoseItsQueriesRead) {
  const nn::GPT before = model_of(8);
  nn::GPT after = model_of(2);
  fill_unevenly(before);
  nn::pool_kv_heads(before, after);
  // Query heads 4 to 7 read KV heads 4 to 7 before and head 1 after: head 1's row 2 is row 6 here.
  for (const std::string name : {"k_proj", "v_proj"}) {
    const std::string at = "model.layers.1.self_attn." + name;
    const Tensor wide = value(before, at + ".weight"), narrow = value(after, at + ".weight");
    const Tensor wide_bias = value(before, at + ".bias"), narrow_bias = value(after, at + ".bias");
    ASSERT_EQ(narrow.shape(), (Shape{8, 32}));
    for (const int64_t column : {0, 17, 31}) {
      double sum = 0;
      for (const int64_t head : {4, 5, 6, 7}) {
        sum += wide.data<float>()[(head * 4 + 2) * 32 + column];
      }
      EXPECT_NEAR(narrow.data<float>()[6 * 32 + column], sum / 4, 1e-6) << name;
    }
    double sum = 0;
    for (const int64_t head : {0, 1, 2, 3}) sum += wide_bias.data<float>()[head * 4 + 3];
    EXPECT_NEAR(narrow_bias.data<float>()[3], sum / 4, 1e-6) << name;
  }
  for (const std::string name :
       {"model.embed_tokens.weight", "model.norm.bias", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_norm.weight"}) {
    EXPECT_EQ(value(after, name).to_vector<float>(), value(before, name).to_vector<float>());
  }
}

TEST(PoolHeads, OfHeadsThatAreAlikeChangesNothing) {
  const nn::GPT few = model_of(2), many = model_of(8);
  fill_unevenly(few);
  fill_unevenly(many);
  // Each of few's heads four times in a row.
  for (const nn::Parameter& p : many.parameters()) {
    const Tensor source = value(few, p.name);
    Tensor target = p.value.value();
    const int64_t head = source.numel() / 2;
    if (source.numel() == target.numel()) {
      target.copy_from(source);
    } else {
      for (int64_t h = 0; h < 8; ++h) {
        std::copy_n(source.data<float>() + h / 4 * head, head, target.data<float>() + h * head);
      }
    }
    nn::Variable(p.value).changed();
  }
  nn::GPT pooled = model_of(4);
  nn::pool_kv_heads(many, pooled);
  EXPECT_LE(max_relative_error(logits_of(pooled), logits_of(many)), 1e-5);
  fill_unevenly(many);
  nn::pool_kv_heads(many, pooled);
  EXPECT_GT(max_relative_error(logits_of(pooled), logits_of(many)), 1e-2);
}

TEST(PoolHeads, RefusesWhatItCannotDivide) {
  const nn::GPT four = model_of(4);
  nn::GPT eight = model_of(8), same = model_of(4);
  EXPECT_THROW(nn::pool_kv_heads(four, eight), Error);
  EXPECT_THROW(nn::pool_kv_heads(four, same), Error);
}

}  // namespace
}  // namespace headroom::testing
