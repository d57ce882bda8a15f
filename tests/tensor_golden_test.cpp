// The tests' own helpers: what the golden files hold, and the error every comparison uses.
#include "tests/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace headroom::testing {
namespace {

Tensor row(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

TEST(Golden, ListsItsCases) {
  const Golden golden("ops.safetensors");
  EXPECT_EQ(golden.cases("attention_").size(),
            37U);  // 6 pairs of head counts x 6 masks, and the sink
  EXPECT_EQ(golden.cases("rope_half_"),
            (std::vector<std::string>{"rope_half_0", "rope_half_4091", "rope_half_5"}));
  EXPECT_EQ(golden.cases().size(), 54U);
  EXPECT_EQ(golden.names("softcap"),
            (std::vector<std::string>{"dout.y", "grad.x", "in.x", "out.y"}));
  EXPECT_TRUE(golden.has("linear", "in.b"));
  EXPECT_FALSE(golden.has("linear_no_bias", "in.b"));
}

TEST(Golden, GivesRealNumbersAsAskedAndIntegersAsTheyAre) {
  const Golden golden("ops.safetensors");
  const Tensor wide = golden.tensor("linear", "in.x"),
               narrow = golden.tensor("linear", "in.x", DType::f32);
  EXPECT_EQ(wide.shape(), (Shape{3, 5, 12}));
  EXPECT_EQ(wide.dtype(), DType::f64);
  EXPECT_EQ(narrow.dtype(), DType::f32);
  EXPECT_EQ(to_doubles(narrow), to_doubles(wide));
  EXPECT_EQ(golden.tensor("embedding", "in.ids").dtype(), DType::i32);
  // softcap's definition, 15 tanh(x / 15), ties what is read to what the file means.
  const auto x = to_doubles(golden.tensor("softcap", "in.x"));
  const auto y = to_doubles(golden.tensor("softcap", "out.y"));
  ASSERT_EQ(x.size(), 185U);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], 15 * std::tanh(x[i] / 15), 1e-6);
}

TEST(Golden, GivesTheArgumentsOfACase) {
  const Golden golden("ops.safetensors");
  EXPECT_EQ(golden.number("rope_half_4091", "offset"), 4091);
  EXPECT_EQ(golden.text("rope_half_4091", "style"), "half");
  EXPECT_EQ(golden.arguments("attention_q8_kv2_tq3_tk20_w6_s3").at("window"), 6);
  EXPECT_THROW(golden.arguments("nothing"), Error);
  const Golden model("gpt_mqa_rope_rmsnorm_gelu.safetensors");
  EXPECT_EQ(model.number("config", "Hkv"), 1);
  EXPECT_EQ(model.tensor("", "ids").dtype(), DType::i32);
  EXPECT_EQ(model.tensor("param", "tok_emb").shape(), (Shape{29, 32}));
}

TEST(MaxRelativeError, IsTheLargestDifferenceOverTheLargestReference) {
  EXPECT_DOUBLE_EQ(max_relative_error(row({1, -4}), row({1.5, -5})), 0.2);
  EXPECT_DOUBLE_EQ(max_relative_error(row({1.5, -5}), row({1, -4})), 0.25);
  EXPECT_EQ(max_relative_error(row({2, 3}), row({2, 3})), 0);
  EXPECT_EQ(max_relative_error(row({0, 0}), row({0, 0})), 0);
  EXPECT_DOUBLE_EQ(max_relative_error(Tensor::from(std::vector<bf16>{bf16(1.5F)}, {1}), row({1})),
                   0.5);
}

TEST(MaxRelativeError, NeverHidesWhatIsNotFinite) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const auto& [a, b] :
       {std::pair(row({1, nan}), row({1, 2})), std::pair(row({1, 2}), row({nan, 2})),
        std::pair(row({1, 2}), row({1, infinity})),
        std::pair(row({1, infinity}), row({1, infinity})),
        std::pair(row({0, 1e-30}), row({0, 0}))}) {
    EXPECT_EQ(max_relative_error(a, b), infinity);
  }
  EXPECT_THROW(max_relative_error(row({1, 2}), row({1})), Error);
}

}  // namespace
}  // namespace headroom::testing
