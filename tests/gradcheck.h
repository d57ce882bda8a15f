// Gradients by central differences in float64: what every differentiable operator is held to.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "tensor/rng.h"
#include "tests/golden.h"
#include "tests/test_device.h"

namespace headroom::testing {

using autograd::Variable;

/// Standard normal numbers, the same for the same name.
inline Tensor random_tensor(const Shape& shape, const std::string& name, DType dtype = DType::f64) {
  Tensor x = Tensor::empty(shape, dtype);
  fill_normal(x, RandomStream(7, name), 1.0);
  return x;
}

inline double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = to_doubles(a), y = to_doubles(b);
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

/// Writes one element of a leaf, wherever it is.
inline void set_element(autograd::Variable& leaf, int64_t i, double value) {
  const Tensor x = leaf.value();
  x.reshape({x.numel()}).rows(i, i + 1).copy_from(Tensor::from(std::vector<double>{value}, {1}));
  leaf.changed();
}

/// Compares the gradient of sum(f(inputs) * dy), for a random dy, with central differences, for
/// every element of every input. The step of 1e-6 leaves errors near 1e-9 in float64; wrong
/// mathematics shows at 1e-2.
inline void expect_gradient(const std::function<Variable(const std::vector<Variable>&)>& f,
                            const std::vector<Tensor>& inputs, double tolerance = 1e-7) {
  std::vector<Variable> leaves;
  for (const Tensor& x : inputs) {
    leaves.emplace_back(there(x.clone()), true);
  }
  const Variable y = f(leaves);
  const Tensor dy = random_tensor(y.shape(), "upstream");
  y.backward(there(dy));
  const autograd::NoGrad no_grad;
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_TRUE(leaves[i].grad().defined()) << "input " << i << " got no gradient";
    ASSERT_EQ(leaves[i].grad().shape(), inputs[i].shape());
    const std::vector<double> x = to_doubles(inputs[i]), got = to_doubles(leaves[i].grad());
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const auto at = static_cast<size_t>(j);
      constexpr double h = 1e-6;
      set_element(leaves[i], j, x[at] + h);
      const double above = dot(f(leaves).value(), dy);
      set_element(leaves[i], j, x[at] - h);
      const double below = dot(f(leaves).value(), dy);
      set_element(leaves[i], j, x[at]);
      const double expected = (above - below) / (2 * h);
      ASSERT_NEAR(got[at], expected, tolerance * std::max(1.0, std::abs(expected)))
          << "input " << i << ", element " << j;
    }
  }
}

}  // namespace headroom::testing
