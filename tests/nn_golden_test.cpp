// The four golden GPTs: logits, loss and every gradient, in float64 and float32.
#include <gtest/gtest.h>

#include "golden_gpt.h"

namespace headroom::testing {

class GoldenModels : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(GoldenModels, LogitsLossAndEveryGradientAgree) {
  const auto& [tag, type] = GetParam();
  const double tolerance = type == DType::f64 ? 1e-6 : 1e-5;
  const GoldenGPT golden(tag, type);
  const auto [tokens, targets] = golden.batch(0);
  const nn::Pass pass{.dtype = type};

  const int64_t rows = tokens.numel();
  const autograd::Variable hidden = golden.model->hidden(tokens, pass);
  const autograd::Variable logits =
      golden.model->head(hidden.reshape({rows, golden.config.n_embd}));
  const Tensor expected = golden.file.tensor("", "logits", type);
  EXPECT_LE(max_relative_error(logits.value().reshape(expected.shape()), expected), tolerance);

  const autograd::Variable loss = golden.model->loss(tokens, targets, pass);
  EXPECT_NEAR(loss.value().item(), golden.file.tensor("", "loss").item(),
              type == DType::f64 ? 1e-6 : 1e-4);
  loss.backward();
  for (const nn::Parameter& p : golden.model->parameters()) {
    const Tensor gradient = golden.file.tensor("grad", GoldenGPT::file_name(p.name), type);
    EXPECT_LE(max_relative_error(p.value.grad(), gradient), tolerance) << p.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModels,
                         ::testing::Combine(::testing::ValuesIn(golden_gpt_tags()),
                                            ::testing::Values(DType::f64, DType::f32)),
                         [](const auto& each) {
                           return std::get<0>(each.param) + "_" +
                                  std::string(name_of(std::get<1>(each.param)));
                         });

}  // namespace headroom::testing
