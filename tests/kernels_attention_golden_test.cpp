// The attention kernels against PyTorch's values and against finite differences.
#include <gtest/gtest.h>

#include "tests/attention_problems.h"

namespace headroom {
namespace {

using testing::as;
using testing::AttentionInputs;
using testing::backward;
using testing::forward;
using testing::Gradients;
using testing::make_inputs;
using testing::normals;
using testing::output_shape;
using testing::Precision;
using testing::Problem;

double weighted_sum(const AttentionInputs& in, const std::vector<double>& dout) {
  const std::vector<double> out = to_doubles(forward(in).out);
  return std::inner_product(out.begin(), out.end(), dout.begin(), 0.0);
}

TEST(AttentionGradient, EqualsFiniteDifferences) {
  std::mt19937 random(6);
  const Problem p{.name = "differences",
                  .lengths = {9, 5},
                  .counts = {7, 5},
                  .heads = 2,
                  .kv_heads = 1,
                  .key_size = 3,
                  .value_size = 5,
                  .window = 4,
                  .sinks = 1,
                  .sink_logits = true};
  AttentionInputs in = make_inputs(p, DType::f64, random);
  const Shape shape = output_shape(in);
  const std::vector<double> dout = normals(shape.numel(), random);
  const Gradients g = backward(in, Tensor::from(dout, shape), std::nan(""), false);
  const auto compare = [&](Tensor& x, const Tensor& dx, const char* what) {
    double* values = x.data<double>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      constexpr double kStep = 1e-5;
      const double kept = values[i];
      values[i] = kept + kStep;
      const double up = weighted_sum(in, dout);
      values[i] = kept - kStep;
      const double down = weighted_sum(in, dout);
      values[i] = kept;
      EXPECT_NEAR(dx.data<double>()[i], (up - down) / (2 * kStep), 1e-8) << what << " " << i;
    }
  };
  compare(in.q, g.dq, "dq");
  compare(in.kv.k, g.dk, "dk");
  compare(in.kv.v, g.dv, "dv");
  compare(in.sink_logits, g.dsink, "dsink");
}

/// (B, H, T, D) of the golden files to (B, T, H, D) and back.
Tensor swap_middle(const Tensor& x) {
  const int64_t outer = x.dim(1), inner = x.dim(2), size = x.dim(3);
  const std::vector<double> from = to_doubles(x);
  std::vector<double> to(from.size());
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t d = i % size, m = i / size % inner, o = i / size / inner % outer;
    const int64_t b = i / size / inner / outer;
    to[static_cast<size_t>(((b * inner + m) * outer + o) * size + d)] =
        from[static_cast<size_t>(i)];
  }
  return as(x.dtype(), to, {x.dim(0), inner, outer, size});
}

class AttentionGolden : public ::testing::TestWithParam<Precision> {};

TEST_P(AttentionGolden, EqualsPyTorch) {
  const testing::Golden golden("ops.safetensors");
  const DType type = GetParam().type;
  const std::vector<std::string> cases = golden.cases("attention_");
  EXPECT_EQ(cases.size(), 37U);
  for (const std::string& name : cases) {
    SCOPED_TRACE(name);
    const auto tensor = [&](const char* key) {
      return swap_middle(golden.tensor(name, key, type));
    };
    const bool learned = golden.has(name, "in.sink_logits");
    AttentionInputs in;
    in.q = tensor("in.q");
    const Tensor k = tensor("in.k"), v = tensor("in.v");
    const int64_t batch = k.dim(0), keys = k.dim(1);
    in.kv.k = k.reshape({batch * keys, k.dim(2), k.dim(3)});
    in.kv.v = v.reshape({batch * keys, v.dim(2), v.dim(3)});
    in.kv.slots = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(keys)}, {2, 1});
    in.kv.starts = Tensor::from(std::vector<int32_t>{0, 0}, {2, 1});
    in.kv.lengths = Tensor::from(std::vector<int32_t>(2, static_cast<int32_t>(keys)), {2});
    in.kv.counts = Tensor::from(std::vector<int32_t>(2, static_cast<int32_t>(in.q.dim(1))), {2});
    if (learned) {
      in.sink_logits = golden.tensor(name, "in.sink_logits", type);
      in.scale = 1.0 / std::sqrt(static_cast<double>(in.q.dim(3)));
    } else {
      in.mask = {static_cast<int64_t>(golden.number(name, "window")),
                 static_cast<int64_t>(golden.number(name, "sinks"))};
      in.scale = golden.number(name, "scale");
    }
    const double bound = GetParam().tolerance;
    EXPECT_LE(testing::max_relative_error(forward(in).out, tensor("out.y")), bound);
    const Gradients g = backward(in, tensor("dout.y"), std::nan(""), false);
    EXPECT_LE(testing::max_relative_error(g.dq, tensor("grad.q")), bound);
    EXPECT_LE(testing::max_relative_error(g.dk, tensor("grad.k").reshape(in.kv.k.shape())), bound);
    EXPECT_LE(testing::max_relative_error(g.dv, tensor("grad.v").reshape(in.kv.v.shape())), bound);
    if (learned) {
      EXPECT_LE(testing::max_relative_error(g.dsink, golden.tensor(name, "grad.sink_logits", type)),
                bound);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionGolden,
                         ::testing::Values(Precision{"f64", DType::f64, 1e-6},
                                           Precision{"f32", DType::f32, 1e-5}),
                         [](const ::testing::TestParamInfo<Precision>& suite) {
                           return std::string(suite.param.name);
                         });

}  // namespace
}  // namespace headroom
