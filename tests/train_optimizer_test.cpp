// Muon against numbers computed with NumPy in float64, and which parameters decay (TRN-06).
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops.h"
#include "golden.h"
#include "nn/gpt.h"
#include "train/batches.h"
#include "train_run.h"

namespace headroom::testing {

using autograd::Variable;
using train::Optimizer;

namespace {

/// sin(a + 0.7 i + 1.3 j + 0.11 i j), the test matrices.
Tensor formula(int64_t rows, int64_t cols, double a) {
  std::vector<double> values;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const auto x = static_cast<double>(i), y = static_cast<double>(j);
      values.push_back(std::sin(a + 0.7 * x + 1.3 * y + 0.11 * x * y));
    }
  }
  return Tensor::from(values, {rows, cols});
}

/// Gives `p` the gradient `g`: that of sum(p * g).
void set_gradient(Variable& p, const Tensor& g) {
  p.clear_grad();
  const Variable sum = autograd::add(p, Variable(Tensor::zeros(g.shape(), g.dtype())));
  sum.backward(g);
}

nn::GPT small_gpt(bool tied, DType dtype = DType::f32) {
  configs::ModelConfig model = small_config("").model;
  model.tie_embeddings = tied;
  return nn::GPT(model, 29, nn::Scope{.seed = 3, .dtype = dtype});
}

train::Batch some_batch() {
  std::vector<int32_t> tokens, targets;
  for (int32_t i = 0; i < 32; ++i) {
    tokens.push_back(i * 7 % 29);
    targets.push_back((i + 1) * 7 % 29);
  }
  return {Tensor::from(tokens, {2, 16}), Tensor::from(targets, {2, 16})};
}

nn::Pass pass_in(DType dtype) {
  return {.dtype = dtype, .cache = nullptr, .counts = {}, .mask = {}, .dropout = nullptr};
}

}  // namespace

/// Gradients that are sums over `count` batches, and not clipped.
Optimizer::Clip whole(double count = 1) {
  return {Tensor::from(std::vector<double>{1}, {}), count};
}

TEST(Muon, TwoStepsEqualNumPy) {
  const std::vector<double> wide = {0.8212248974519004,  0.7575838701242044,   -0.42254315973776124,
                                    -0.9697806599920966, -0.08695257074050354, 0.9915092081952944,
                                    0.03620425394365645, -0.9743469047756363,  -0.36480138574705717,
                                    0.8450574770633964,  0.6771678094271341,   -0.6759827617653639,
                                    -0.748747885983141,  0.6141355354428885,   0.8228660820710404};
  const std::vector<double> tall = {0.8308046444817782,  0.7492426804557433,  -0.4199419920057598,
                                    0.9937943308280102,  0.04741344333333586, -0.9623502064337763,
                                    0.6794980536941883,  -0.6826629816262341, -0.7530063996560082,
                                    0.05272677430605971, -0.9898616509496141, 0.05626086583108676,
                                    -0.5801355794553699, -0.6850127899629647, 0.8379227940701133};
  for (const auto& [rows, expected] : {std::pair(3, wide), std::pair(5, tall)}) {
    const int64_t cols = 8 - rows;
    const Variable weight(formula(rows, cols, 1.0), true);
    const nn::Parameter parameter{"model.layers.0.mlp.up_proj.weight", weight};
    Optimizer optimizer(configs::TrainConfig{}, {parameter}, DType::f64);
    Variable p = weight;
    set_gradient(p, formula(rows, cols, 2.0));
    optimizer.update(1, 0.5, whole());
    set_gradient(p, formula(rows, cols, 3.0));
    optimizer.update(2, 1.0, whole(4));
    EXPECT_LE(max_relative_error(p.value(), Tensor::from(expected, {rows, cols})), 1e-12);
  }
}

TEST(Muon, OrthogonalisesInEveryType) {
  // Singular values of the result in float64, by NumPy: 1.0716, 0.9985, 0.8756.
  const Tensor input = formula(3, 5, 2.0).reshape({1, 3, 5});
  const Tensor exact = train::orthogonal(input);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor x = Tensor::empty({1, 3, 5}, dtype);
    kernels::backend(kCpu).cast(input, x);
    EXPECT_LE(max_relative_error(train::orthogonal(x), exact), dtype == DType::f32 ? 1e-5 : 0.05);
  }
  const std::vector<double> o = to_doubles(exact);
  double squares = 0;
  for (const double v : o) squares += v * v;
  EXPECT_NEAR(squares, 1.07155296 * 1.07155296 + 0.99846937 * 0.99846937 + 0.87562196 * 0.87562196,
              1e-6);
}

/// Matrices of one shape share the iteration, and nothing else.
TEST(Muon, TreatsEveryMatrixOfAStackAlone) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3, 5}, {6, 2}}) {
    Tensor stack = Tensor::empty({3 * rows, cols}, DType::f64);
    for (int64_t i = 0; i < 3; ++i) {
      stack.rows(i * rows, (i + 1) * rows).copy_from(formula(rows, cols, static_cast<double>(i)));
    }
    const Tensor together = train::orthogonal(stack.reshape({3, rows, cols}));
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor alone =
          train::orthogonal(formula(rows, cols, static_cast<double>(i)).reshape({1, rows, cols}));
      EXPECT_LE(max_relative_error(together.rows(i, i + 1), alone), 1e-14);
    }
  }
}

TEST(Muon, LeavesAMatrixWithoutGradientAlone) {
  const Tensor zero = Tensor::zeros({1, 4, 6}, DType::f32);
  for (const double v : to_doubles(train::orthogonal(zero))) EXPECT_EQ(v, 0);
}

TEST(Optimizer, MuonTakesHiddenMatricesAndAdamWTheRest) {
  const nn::GPT model = small_gpt(false);
  configs::TrainConfig muon, adamw;
  adamw.optimizer = configs::OptimizerKind::adamw;
  for (const nn::Parameter& p : model.parameters()) {
    const bool hidden = p.name.find("_proj.weight") != std::string::npos;
    EXPECT_EQ(train::rule_of(muon, p) == train::Rule::muon, hidden) << p.name;
    EXPECT_EQ(train::rule_of(adamw, p), train::Rule::adamw) << p.name;
  }
}

TEST(Optimizer, DecaysMatricesAndNothingElse) {
  for (const auto kind : {configs::OptimizerKind::adamw, configs::OptimizerKind::muon}) {
    for (const bool tied : {true, false}) {
      const nn::GPT model = small_gpt(tied);
      configs::TrainConfig recipe;
      recipe.optimizer = kind;
      recipe.lr = recipe.adamw_lr = 0.01;
      recipe.weight_decay = 0.5;
      std::vector<std::vector<double>> before;
      for (const nn::Parameter& p : model.parameters())
        before.push_back(to_doubles(p.value.value()));
      Optimizer optimizer(recipe, model.parameters(), DType::f32);
      for (int step = 1; step <= 50; ++step) {
        for (const nn::Parameter& p : model.parameters()) {
          Variable v = p.value;
          set_gradient(v, Tensor::zeros(v.shape(), v.dtype()));
        }
        optimizer.update(step, 1.0, whole());
      }
      const double kept = std::pow(1 - 0.01 * 0.5, 50);  // once per step, a tied matrix too
      for (size_t i = 0; i < before.size(); ++i) {
        const nn::Parameter p = model.parameters()[i];
        const bool norm = p.name.find("norm") != std::string::npos;
        const std::vector<double> after = to_doubles(p.value.value());
        for (size_t j = 0; j < after.size(); ++j) {
          ASSERT_NEAR(after[j], before[i][j] * (norm ? 1.0 : kept), 1e-6) << p.name;
        }
      }
    }
  }
}

TEST(Optimizer, ATiedMatrixHasOneStateAndTheSumOfBothGradients) {
  const nn::GPT tied = small_gpt(true, DType::f64), untied = small_gpt(false, DType::f64);
  std::map<std::string, Variable> of_tied, of_untied;
  for (const nn::Parameter& p : tied.parameters()) of_tied[p.name] = p.value;
  int64_t difference = 0;
  for (const nn::Parameter& p : untied.parameters()) {
    of_untied[p.name] = p.value;
    difference += p.value.value().numel();
    const std::string source = p.name == "lm_head.weight" ? "model.embed_tokens.weight" : p.name;
    Tensor(p.value.value()).copy_from(of_tied.at(source).value());
  }
  for (const auto& [name, value] : of_tied) difference -= value.value().numel();
  EXPECT_EQ(difference, 29 * 16);

  const train::Batch batch = some_batch();
  tied.loss(batch.tokens, batch.targets, pass_in(DType::f64)).backward();
  untied.loss(batch.tokens, batch.targets, pass_in(DType::f64)).backward();
  const std::vector<double> both = to_doubles(of_tied.at("model.embed_tokens.weight").grad());
  const std::vector<double> embedding =
      to_doubles(of_untied.at("model.embed_tokens.weight").grad());
  const std::vector<double> head = to_doubles(of_untied.at("lm_head.weight").grad());
  for (size_t i = 0; i < both.size(); ++i) {
    ASSERT_NEAR(both[i], embedding[i] + head[i], 1e-14);
  }

  int states = 0;
  for (const auto& [name, tensor] :
       Optimizer(configs::TrainConfig{}, tied.parameters(), DType::f64).state()) {
    states += name.find("embed_tokens") != std::string::npos ? 1 : 0;
    EXPECT_EQ(name.find("lm_head"), std::string::npos);
  }
  EXPECT_EQ(states, 2);  // m and v
}

}  // namespace headroom::testing
