// Attention by cuDNN against the definition, on the GPU: that it has a plan for what is sent to it,
// and that the plan computes what it should. The choice of calls is tests/simt_cudnn_test.cpp's.
#include <gtest/gtest.h>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/kv_view.h"
#include "tests/attention_problems.h"
#include "tests/reference.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;

std::vector<int32_t> sequences(int32_t length) { return {length, length}; }

const std::vector<Problem> kProblems = {
    {.name = "one_block", .lengths = sequences(64), .counts = sequences(64)},
    {.name = "size_64",
     .lengths = sequences(128),
     .counts = sequences(128),
     .heads = 4,
     .key_size = 64,
     .value_size = 64},
    {.name = "size_128_multi_query",
     .lengths = sequences(192),
     .counts = sequences(192),
     .heads = 4,
     .kv_heads = 1,
     .key_size = 128,
     .value_size = 128},
    {.name = "size_104",
     .lengths = sequences(128),
     .counts = sequences(128),
     .key_size = 104,
     .value_size = 104},
    {.name = "window",
     .lengths = sequences(256),
     .counts = sequences(256),
     .heads = 4,
     .key_size = 64,
     .value_size = 64,
     .window = 100},
    {.name = "window_longer_than_all",
     .lengths = sequences(64),
     .counts = sequences(64),
     .window = 100},
    {.name = "piece_of_a_prompt",
     .lengths = sequences(192),
     .counts = sequences(64),
     .heads = 4,
     .key_size = 64,
     .value_size = 64},
    {.name = "piece_of_a_prompt_window",
     .lengths = sequences(192),
     .counts = sequences(64),
     .heads = 4,
     .key_size = 64,
     .value_size = 64,
     .window = 70},
};

class Cudnn : public ::testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    if (cuda::cudnn_version().empty()) GTEST_SKIP() << "a build without cuDNN";
  }
  static void expect_near(const Tensor& actual, const std::vector<double>& expected, double bound,
                          const char* what) {
    EXPECT_LE(max_relative_error(here(actual), Tensor::from(expected, actual.shape())), bound)
        << what;
  }
  /// The problem in f64, whose view says that its keys lie one after another.
  AttentionInputs dense_inputs() {
    AttentionInputs in = make_inputs(GetParam(), DType::bf16, random_);
    kernels::KVView& kv = in.kv;
    kv.dense = kernels::dense_keys(kv.slots, kv.starts, kv.lengths, kv.counts, in.q.dim(1));
    return in;
  }
  /// Memory in which what is left unwritten shows, or to which is added.
  static Tensor filled(const Shape& shape, DType type, double value) {
    return there(as(type, std::vector<double>(static_cast<size_t>(shape.numel()), value), shape));
  }

  std::mt19937 random_{1};
};

TEST_P(Cudnn, HasTheForwardPass) {
  const AttentionInputs in = dense_inputs();
  const AttentionResult expected =
      reference_attention(in, normals(output_shape(in).numel(), random_));
  const AttentionInputs operands = there(as(DType::bf16, in));
  ASSERT_TRUE(cuda::cudnn_takes(operands));
  const Shape shape = output_shape(in);
  Tensor out = filled(shape, DType::bf16, std::nan(""));
  Tensor lse = filled({shape.dim(0), shape.dim(1), shape.dim(2)}, DType::f32, std::nan(""));
  ASSERT_TRUE(cuda::cudnn_attention(operands, out, lse));
  expect_near(out, expected.out, 1e-2, "out");
  expect_near(lse, expected.lse, 1e-4, "lse");
}

/// Over what the memory held, and added to it; the pass that repeats, where this GPU has it, and
/// the other one.
TEST_P(Cudnn, HasTheBackwardPass) {
  const AttentionInputs in = dense_inputs();
  const Shape shape = output_shape(in);
  const Tensor dout = as(DType::bf16, normals(shape.numel(), random_), shape);
  const AttentionResult expected = reference_attention(in, to_doubles(dout));
  const AttentionInputs operands = there(as(DType::bf16, in));
  const Tensor out = there(as(DType::bf16, expected.out, shape));
  const Tensor lse =
      there(as(DType::f32, expected.lse, {shape.dim(0), shape.dim(1), shape.dim(2)}));
  for (const bool repeatable : {false, true}) {
    for (const bool add : {false, true}) {
      const double fill = add ? 1.0 : std::nan("");
      const Tensor dq = filled(in.q.shape(), DType::bf16, fill),
                   dk = filled(in.kv.k.shape(), DType::bf16, fill),
                   dv = filled(in.kv.v.shape(), DType::bf16, fill);
      const bool ran = cuda::cudnn_attention_backward(operands, out, lse, there(dout), {dq, add},
                                                      {dk, add}, {dv, add}, repeatable);
      if (repeatable && !ran) {
        GTEST_SKIP() << "no backward pass that repeats on this GPU: our own kernels serve";
      }
      ASSERT_TRUE(ran);
      const auto shifted = [add](std::vector<double> values) {
        for (double& value : values) value += add ? 1.0 : 0.0;
        return values;
      };
      expect_near(dq, shifted(expected.dq), 5e-2, "dq");
      expect_near(dk, shifted(expected.dk), 5e-2, "dk");
      expect_near(dv, shifted(expected.dv), 5e-2, "dv");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, Cudnn, ::testing::ValuesIn(kProblems),
                         [](const auto& suite) { return std::string(suite.param.name); });

}  // namespace
}  // namespace headroom::testing
