// TRN-11: gradients of and through views, and operators that have none for what is asked.
#include "autograd/ops.h"
#include "golden.h"
#include "gradcheck.h"
#include "kernels/kv_view.h"

namespace headroom::testing {

using namespace autograd;

namespace {

/// Rows 2 to 4 of a larger tensor: a view that begins within its memory.
Tensor view_of(const Shape& shape, const std::string& name) {
  const Tensor whole = random_tensor({3 + 2, shape.numel() / 3}, name);
  return whole.rows(2, 5).reshape(shape);
}

}  // namespace

TEST(Views, HaveTheGradientsOfTheirCopies) {
  const Tensor x = view_of({3, 5}, "x"), w = view_of({3, 5}, "w"), dy = view_of({3, 3}, "dy");
  const auto gradients = [&](bool copied) {
    const auto leaf = [&](const Tensor& t) { return Variable(copied ? t.clone() : t, true); };
    const Variable a = leaf(x), b = leaf(w);
    const Variable y = linear(activation(Activation::gelu_tanh, a), b);
    y.backward(copied ? dy.clone() : dy);
    auto both = to_doubles(a.grad());
    const auto of_b = to_doubles(b.grad());
    both.insert(both.end(), of_b.begin(), of_b.end());
    return both;
  };
  EXPECT_EQ(gradients(false), gradients(true));
}

TEST(Views, ThroughEveryOperatorOfABlock) {
  // q, k and v are reshaped outputs of projections, as in a block; heads share keys in groups.
  const Tensor x = random_tensor({1, 3, 8}, "x"), wq = random_tensor({8, 8}, "wq"),
               wk = random_tensor({4, 8}, "wk"), wv = random_tensor({4, 8}, "wv");
  expect_gradient(
      [](const std::vector<Variable>& in) {
        const Variable n = norm(NormKind::rms_norm, in[0], {}, {}, 1e-5);
        const Variable q = linear(n, in[1]).reshape({1, 3, 4, 2}),
                       k = linear(n, in[2]).reshape({1, 3, 2, 2}),
                       v = linear(n, in[3]).reshape({1, 3, 2, 2});
        return attention(q, k, v, kernels::dense_view(k.value(), v.value(), 3), {});
      },
      {x, wq, wk, wv});
}

TEST(NoGradient, IsSaidWhereThereIsNone) {
  const Variable q(random_tensor({1, 2, 2, 4}, "q"), true),
      k(random_tensor({1, 2, 2, 4}, "k"), true), v(random_tensor({1, 2, 2, 4}, "v"), true);
  AttentionOptions options;
  options.q_sink = q.value();
  const auto kv = kernels::dense_view(k.value(), v.value(), 2);
  EXPECT_THROW(attention(q, k, v, kv, options), Error);
  const auto cache = kernels::dense_view(k.value().clone(), v.value().clone(), 2);
  EXPECT_THROW(attention(q, k, v, cache, {}), Error);
  const NoGrad no_grad;
  EXPECT_EQ(attention(q, k, v, kv, options).shape(), q.shape());
}

TEST(NoGradient, LeavesAResultWithItsValueAlone) {
  const Variable x(random_tensor({2, 3}, "x"), true), w(random_tensor({4, 3}, "w"), true);
  const int64_t nodes = live_nodes();
  const NoGrad no_grad;
  Variable y = linear(x, w);
  EXPECT_EQ(live_nodes(), nodes);
  EXPECT_TRUE(y.defined());
  EXPECT_EQ(y.shape(), (Shape{2, 4}));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_FALSE(y.grad().defined());
  EXPECT_TRUE(y.as(y.dtype()).same_memory(y.value()));
  EXPECT_THROW(y.as(DType::bf16), Error);
  EXPECT_THROW(y.changed(), Error);
  EXPECT_THROW(y.backward(), Error);
}

}  // namespace headroom::testing
