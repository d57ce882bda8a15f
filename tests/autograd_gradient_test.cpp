// Every differentiable operator against central differences, every input, odd shapes.
#include "autograd/ops.h"
#include "gradcheck.h"
#include "kernels/kv_view.h"

namespace headroom::testing {

using namespace autograd;

using Inputs = std::vector<Variable>;

Tensor random_ids(int64_t count, int64_t below, const std::string& name) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(
        RandomStream(3, name).integer(static_cast<uint64_t>(i), static_cast<uint64_t>(below))));
  }
  return Tensor::from(ids, {count});
}

TEST(Gradient, Linear) {
  for (const auto& [rows, in, out] :
       {std::array{1, 1, 1}, {3, 5, 7}, {17, 3, 2}, {2, 65, 9}, {3, 17, 65}}) {
    expect_gradient([](const Inputs& x) { return linear(x[0], x[1], x[2]); },
                    {random_tensor({1, rows, in}, "x"), random_tensor({out, in}, "w"),
                     random_tensor({out}, "b")});
    expect_gradient([](const Inputs& x) { return linear(x[0], x[1]); },
                    {random_tensor({rows, in}, "x"), random_tensor({out, in}, "w")});
  }
}

TEST(Gradient, HeadLinearBothWays) {
  for (const auto& [rows, heads, in, out] :
       {std::array{1, 1, 1, 1}, {1, 3, 5, 7}, {17, 1, 3, 2}, {3, 4, 2, 65}, {65, 2, 3, 1}}) {
    const Tensor x = random_tensor({1, rows, heads, in}, "x");
    expect_gradient([](const Inputs& v) { return head_linear(v[0], v[1], Transpose::no); },
                    {x, random_tensor({heads * in, out}, "w")});
    expect_gradient([](const Inputs& v) { return head_linear(v[0], v[1], Transpose::yes); },
                    {x, random_tensor({heads * out, in}, "w")});
  }
}

TEST(Gradient, SplitThroughEitherPartAndBoth) {
  const Tensor x = random_tensor({2, 3, 17}, "x");
  expect_gradient([](const Inputs& in) { return split(in[0], 5).first; }, {x});
  expect_gradient([](const Inputs& in) { return split(in[0], 5).second; }, {x});
  expect_gradient(
      [](const Inputs& in) {
        const auto [first, second] = split(in[0], 5);
        return concat(second, concat(first, second));
      },
      {x});
}

TEST(Gradient, Concat) {
  for (const auto& [first, second] : {std::array{1, 1}, {3, 17}, {65, 2}}) {
    expect_gradient([](const Inputs& in) { return concat(in[0], in[1]); },
                    {random_tensor({2, 3, first}, "a"), random_tensor({2, 3, second}, "b")});
  }
}

TEST(Gradient, Add) {
  expect_gradient([](const Inputs& x) { return add(x[0], x[1]); },
                  {random_tensor({3, 17}, "a"), random_tensor({3, 17}, "b")});
}

TEST(Gradient, ActivationsOfEveryKind) {
  for (const Activation kind :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu_squared}) {
    for (const int n : {1, 3, 17, 65}) {
      expect_gradient([&](const Inputs& x) { return activation(kind, x[0]); },
                      {random_tensor({n}, "x")});
    }
  }
}

TEST(Gradient, Swiglu) {
  for (const int n : {1, 3, 17, 65}) {
    expect_gradient([](const Inputs& x) { return swiglu(x[0], x[1]); },
                    {random_tensor({n}, "gate"), random_tensor({n}, "up")});
  }
}

TEST(Gradient, Softcap) {
  expect_gradient([](const Inputs& x) { return softcap(x[0], 0.7); }, {random_tensor({3, 7}, "x")});
}

TEST(Gradient, DropoutKeepsItsMask) {
  const RandomStream stream(5, "mask");
  expect_gradient([&](const Inputs& x) { return dropout(x[0], 0.4, stream, 3); },
                  {random_tensor({3, 17}, "x")});
}

TEST(Gradient, Embedding) {
  const Tensor ids = random_ids(9, 4, "ids").reshape({3, 3});  // repeats: rows are added up
  expect_gradient([&](const Inputs& w) { return embedding(ids, w[0], DType::f64); },
                  {random_tensor({5, 7}, "w")});
}

TEST(Gradient, NormsOfBothKinds) {
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    for (const int width : {3, 17, 65}) {
      const Tensor x = random_tensor({3, width}, "x"), w = random_tensor({width}, "w"),
                   b = random_tensor({width}, "b");
      expect_gradient([&](const Inputs& in) { return norm(kind, in[0], in[1], in[2], 1e-5); },
                      {x, w, b});
      expect_gradient([&](const Inputs& in) { return norm(kind, in[0], in[1], {}, 1e-5); }, {x, w});
      expect_gradient([&](const Inputs& in) { return norm(kind, in[0], {}, {}, 1e-5); }, {x});
    }
  }
}

TEST(Gradient, AddNormThroughEitherOutputAndBoth) {
  const Tensor x = random_tensor({3, 17}, "x"), delta = random_tensor({3, 17}, "delta"),
               w = random_tensor({17}, "w"), b = random_tensor({17}, "b");
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    expect_gradient(
        [&](const Inputs& in) {
          const auto [sum, y] = add_norm(kind, in[0], in[1], in[2], in[3], 1e-5);
          return add(sum, activation(Activation::gelu_tanh, y));
        },
        {x, delta, w, b});
    expect_gradient(
        [&](const Inputs& in) { return add_norm(kind, in[0], in[1], in[2], in[3], 1e-5).second; },
        {x, delta, w, b});
    expect_gradient(
        [&](const Inputs& in) { return add_norm(kind, in[0], in[1], {}, {}, 1e-5).first; },
        {x, delta});
  }
}

TEST(Gradient, RopeInBothStyles) {
  Tensor table = Tensor::empty({5, 3, 2}, DType::f64, test_device());
  test_backend().rope_table(there(Tensor::from(std::vector<int32_t>{0, 1, 2, 77, 4000}, {5})),
                            10000, table);
  for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
    expect_gradient([&](const Inputs& x) { return rope(x[0], table, style); },
                    {random_tensor({2, 5, 3, 6}, "x")});
  }
}

struct AttentionCase {
  int64_t B, T, S, H, K, Dk, Dv;
  AttentionMask mask;
  bool learned_sink;
};

TEST(Gradient, AttentionWithGroupsWindowsAndSinks) {
  for (const AttentionCase& c : std::vector<AttentionCase>{{1, 1, 1, 1, 1, 1, 1, {}, false},
                                                           {2, 5, 5, 2, 2, 3, 3, {}, false},
                                                           {1, 3, 7, 4, 2, 5, 2, {}, true},
                                                           {2, 4, 4, 6, 1, 2, 3, {}, true},
                                                           {1, 9, 9, 2, 1, 3, 3, {3, 0}, false},
                                                           {1, 9, 9, 2, 2, 3, 3, {3, 2}, true},
                                                           {1, 2, 67, 2, 1, 2, 2, {}, false}}) {
    if (test_device_is_slow() && c.S > 9) {
      continue;  // kernels_attention_test.cpp has the gradients across tiles
    }
    std::vector<Tensor> inputs{random_tensor({c.B, c.T, c.H, c.Dk}, "q"),
                               random_tensor({c.B, c.S, c.K, c.Dk}, "k"),
                               random_tensor({c.B, c.S, c.K, c.Dv}, "v")};
    if (c.learned_sink) {
      inputs.push_back(random_tensor({c.H}, "sink"));
    }
    expect_gradient(
        [&](const Inputs& in) {
          AttentionOptions options;
          options.scale = 0.6;
          options.mask = c.mask;
          options.sink_logits = c.learned_sink ? in[3] : Variable();
          return attention(in[0], in[1], in[2],
                           kernels::dense_view(in[1].value(), in[2].value(), c.T), options);
        },
        inputs);
  }
}

TEST(Gradient, LinearCrossEntropyInChunks) {
  // Three rows at once: a part of a chunk, one, and several of which the last is short. One target
  // is to be ignored.
  for (const double cap : {0.0, 1.5}) {
    for (const int rows : {1, 3, 8}) {
      Tensor targets = random_ids(rows, 5, "targets");
      if (rows > 1) {
        targets.data<int32_t>()[0] = -1;
      }
      expect_gradient(
          [&](const Inputs& in) { return linear_cross_entropy(in[0], in[1], targets, cap, 3); },
          {random_tensor({rows, 3}, "x"), random_tensor({5, 3}, "w")});
    }
  }
}

TEST(Gradient, TheSameVariableUsedTwice) {
  const Tensor x = random_tensor({2, 3, 2, 4}, "x");
  expect_gradient([](const Inputs& in) { return add(in[0], in[0]); }, {x});
  expect_gradient([](const Inputs& in) { return swiglu(in[0], in[0]); }, {x});
  expect_gradient([](const Inputs& in) { return concat(in[0], in[0]); }, {x});
  expect_gradient([](const Inputs& in) { return add(swiglu(in[0], in[0]), softcap(in[0], 2)); },
                  {x});
  expect_gradient(
      [](const Inputs& in) {
        return add_norm(NormKind::rms_norm, in[0], in[0], {}, {}, 1e-5).second;
      },
      {x});
  expect_gradient(
      [](const Inputs& in) {
        return attention(in[0], in[0], in[0], kernels::dense_view(in[0].value(), in[0].value(), 3),
                         {});
      },
      {x});
}

TEST(Gradient, TiedMatrixSumsBothUses) {
  const Tensor ids = random_ids(6, 5, "ids");
  expect_gradient([&](const Inputs& w) { return linear(embedding(ids, w[0], DType::f64), w[0]); },
                  {random_tensor({5, 3}, "w")});
}

TEST(Gradient, NoRowsGiveZeroGradients) {
  const Variable x(Tensor::empty({0, 3}, DType::f64), true), w(random_tensor({2, 3}, "w"), true);
  const Variable y = linear(x, w);
  y.backward(Tensor::empty({0, 2}, DType::f64));
  EXPECT_EQ(w.grad().to_vector<double>(), std::vector<double>(6, 0.0));
}

}  // namespace headroom::testing
