// Every operator against the values another framework computed in float64, forward and backward, in
// both precisions.
#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "golden.h"
#include "gradcheck.h"
#include "kernels/kv_view.h"

namespace headroom::testing {

using namespace autograd;

class OpsGolden : public ::testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  // The files hold float32, so that is as close as float64 can come; float32 adds its own rounding.
  double tolerance() const { return type() == DType::f64 ? 1e-6 : 1e-5; }
  Variable input(const std::string& group, const std::string& name) const {
    return Variable(there(ops_.tensor(group, "in." + name, type())), true);
  }
  /// Checks the output and, with the stored upstream gradient, the gradient of each named input.
  void expect(const std::string& group, const Variable& y,
              const std::vector<std::pair<std::string, Variable>>& inputs,
              const std::string& output = "y") const {
    SCOPED_TRACE(group);
    const Tensor expected = ops_.tensor(group, "out." + output, type()).reshape(y.shape());
    EXPECT_LE(max_relative_error(y.value(), expected), tolerance());
    y.backward(there(ops_.tensor(group, "dout." + output, type()).reshape(y.shape())));
    for (const auto& [name, variable] : inputs) {
      EXPECT_LE(max_relative_error(variable.grad(), ops_.tensor(group, "grad." + name, type())),
                tolerance())
          << name;
    }
  }
  Golden ops_{"ops.safetensors"};
};

TEST_P(OpsGolden, Linear) {
  const Variable x = input("linear", "x"), w = input("linear", "w"), b = input("linear", "b");
  expect("linear", linear(x, w, b), {{"x", x}, {"w", w}, {"b", b}});
  const Variable x2 = input("linear_no_bias", "x"), w2 = input("linear_no_bias", "w");
  expect("linear_no_bias", linear(x2, w2), {{"x", x2}, {"w", w2}});
}

TEST_P(OpsGolden, Norms) {
  const Variable x = input("layer_norm", "x"), w = input("layer_norm", "w"),
                 b = input("layer_norm", "b");
  expect("layer_norm", norm(NormKind::layer_norm, x, w, b, 1e-5), {{"x", x}, {"w", w}, {"b", b}});
  const Variable x2 = input("rms_norm", "x"), w2 = input("rms_norm", "w");
  expect("rms_norm", norm(NormKind::rms_norm, x2, w2, {}, 1e-6), {{"x", x2}, {"w", w2}});
}

TEST_P(OpsGolden, Activations) {
  for (const auto& [name, kind] : {std::pair("gelu_erf", Activation::gelu_erf),
                                   {"gelu_tanh", Activation::gelu_tanh},
                                   {"relu_squared", Activation::relu_squared}}) {
    const Variable x = input(name, "x");
    expect(name, activation(kind, x), {{"x", x}});
  }
  const Variable gate = input("swiglu", "gate"), up = input("swiglu", "up");
  expect("swiglu", swiglu(gate, up), {{"gate", gate}, {"up", up}});
  const Variable x = input("softcap", "x");
  expect("softcap", softcap(x, ops_.number("softcap", "cap")), {{"x", x}});
}

TEST_P(OpsGolden, Embedding) {
  const Variable w = input("embedding", "w");
  expect("embedding", embedding(ops_.tensor("embedding", "in.ids"), w, type()), {{"w", w}});
}

// The head is the identity, so that x is the logits.
TEST_P(OpsGolden, CrossEntropy) {
  const Variable logits = input("cross_entropy", "logits");
  const int64_t V = logits.dim(-1);
  Tensor identity = Tensor::zeros({V, V}, type());
  for (int64_t i = 0; i < V; ++i) {
    Tensor row = identity.reshape({V * V, 1}).rows(i * V + i, i * V + i + 1);
    kernels::backend(kCpu).fill(row, 1.0);
  }
  const Tensor targets = ops_.tensor("cross_entropy", "in.targets");
  const Variable loss =
      linear_cross_entropy(logits.reshape({targets.numel(), V}), Variable(there(identity)),
                           targets.reshape({targets.numel()}));
  expect("cross_entropy", loss, {{"logits", logits}});
}

// The files keep (B, H, T, D); attention and rope take (B, T, H, D).
Tensor swap_heads(const Tensor& anywhere) {
  const Tensor x = here(anywhere);
  Tensor y = Tensor::empty({x.dim(0), x.dim(2), x.dim(1), x.dim(3)}, x.dtype());
  const size_t row = static_cast<size_t>(x.dim(3)) * size_of(x.dtype());
  for (int64_t b = 0; b < x.dim(0); ++b) {
    for (int64_t h = 0; h < x.dim(1); ++h) {
      for (int64_t t = 0; t < x.dim(2); ++t) {
        const auto from = static_cast<size_t>((b * x.dim(1) + h) * x.dim(2) + t);
        const auto to = static_cast<size_t>((b * x.dim(2) + t) * x.dim(1) + h);
        std::memcpy(static_cast<char*>(y.raw()) + to * row,
                    static_cast<const char*>(x.raw()) + from * row, row);
      }
    }
  }
  return y;
}

Tensor there_swapped(const Tensor& x) { return there(swap_heads(x)); }

TEST_P(OpsGolden, Rope) {
  for (const std::string& group : ops_.cases("rope_")) {
    SCOPED_TRACE(group);
    const Variable x(there(swap_heads(ops_.tensor(group, "in.x", type()))), true);
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < x.dim(1); ++t) {
      positions.push_back(static_cast<int32_t>(ops_.number(group, "offset")) +
                          static_cast<int32_t>(t));
    }
    Tensor table = Tensor::empty({x.dim(1), x.dim(3) / 2, 2}, type(), test_device());
    test_backend().rope_table(there(Tensor::from(positions, {x.dim(1)})),
                              ops_.number(group, "base"), table);
    const Variable y = rope(
        x, table, ops_.text(group, "style") == "half" ? RopeStyle::half : RopeStyle::interleaved);
    EXPECT_LE(max_relative_error(swap_heads(y.value()), ops_.tensor(group, "out.y", type())),
              tolerance());
    y.backward(there_swapped(ops_.tensor(group, "dout.y", type())));
    EXPECT_LE(max_relative_error(swap_heads(x.grad()), ops_.tensor(group, "grad.x", type())),
              tolerance());
  }
}

TEST_P(OpsGolden, Attention) {
  const std::vector<std::string> cases = ops_.cases("attention_");
  ASSERT_EQ(cases.size(), 37U);
  for (const std::string& group : cases) {
    SCOPED_TRACE(group);
    const auto load = [&](const std::string& name) {
      return Variable(there_swapped(ops_.tensor(group, "in." + name, type())), true);
    };
    const Variable q = load("q"), k = load("k"), v = load("v");
    const bool learned_sink = ops_.has(group, "in.sink_logits");
    AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
    if (learned_sink) {
      options.sink_logits = input(group, "sink_logits");
    } else {
      options.mask = {static_cast<int64_t>(ops_.number(group, "window")),
                      static_cast<int64_t>(ops_.number(group, "sinks"))};
    }
    const Variable y =
        attention(q, k, v, kernels::dense_view(k.value(), v.value(), q.dim(1)), options);
    EXPECT_LE(max_relative_error(swap_heads(y.value()), ops_.tensor(group, "out.y", type())),
              tolerance());
    y.backward(there_swapped(ops_.tensor(group, "dout.y", type())));
    for (const auto& [name, variable] : {std::pair("q", q), {"k", k}, {"v", v}}) {
      EXPECT_LE(max_relative_error(swap_heads(variable.grad()),
                                   ops_.tensor(group, std::string("grad.") + name, type())),
                tolerance())
          << name;
    }
    if (learned_sink) {
      EXPECT_LE(max_relative_error(options.sink_logits.grad(),
                                   ops_.tensor(group, "grad.sink_logits", type())),
                tolerance());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, OpsGolden, ::testing::Values(DType::f64, DType::f32),
                         [](const auto& each) { return std::string(name_of(each.param)); });

}  // namespace headroom::testing
