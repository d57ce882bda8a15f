// The golden GPTs through 20 AdamW steps: losses, gradient norms and final weights.
#include <gtest/gtest.h>

#include "golden_gpt.h"
#include "tests/test_device.h"
#include "train/step.h"

namespace headroom::testing {

class GoldenTraining : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(GoldenTraining, LossesNormsAndFinalWeightsAgree) {
  const auto& [tag, type] = GetParam();
  if (test_device_is_slow() && type == DType::f32) {
    GTEST_SKIP() << "f64 shows the same at a closer bound";
  }
  const bool exact = type == DType::f64;
  const GoldenGPT golden(tag, type);
  configs::TrainConfig recipe;
  recipe.optimizer = configs::OptimizerKind::adamw;
  recipe.lr = golden.file.number("adamw", "lr");
  recipe.beta1 = golden.file.number("adamw", "beta1");
  recipe.beta2 = golden.file.number("adamw", "beta2");
  recipe.weight_decay = golden.file.number("adamw", "weight_decay");
  train::Optimizer optimizer(recipe, golden.model->parameters(), type);

  const Tensor losses = golden.file.tensor("train", "losses");
  std::vector<double> our_losses, our_norms;
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const auto [tokens, targets] = golden.batch(step);
    const train::Batch batch[] = {{tokens, targets}};
    const train::StepResult result = train_step(
        *golden.model, optimizer, batch,
        {.step = step + 1, .clip_norm = golden.file.number("adamw", "clip_norm"), .dtype = type});
    our_losses.push_back(result.loss);
    our_norms.push_back(result.gradient_norm);
  }
  const double tolerance = exact ? 1e-6 : 1e-4;
  EXPECT_LE(max_relative_error(Tensor::from(our_losses, losses.shape()), losses), tolerance);
  EXPECT_LE(max_relative_error(Tensor::from(our_norms, losses.shape()),
                               golden.file.tensor("train", "grad_norms")),
            tolerance);
  for (const nn::Parameter& p : golden.model->parameters()) {
    const Tensor expected =
        golden.file.tensor("train", "param/" + GoldenGPT::file_name(p.name), type);
    EXPECT_LE(max_relative_error(p.value.value(), expected), exact ? 1e-6 : 5e-4) << p.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTraining,
                         ::testing::Combine(::testing::ValuesIn(golden_gpt_tags()),
                                            ::testing::Values(DType::f64, DType::f32)),
                         [](const auto& each) {
                           return std::get<0>(each.param) + "_" +
                                  std::string(name_of(std::get<1>(each.param)));
                         });

}  // namespace headroom::testing
