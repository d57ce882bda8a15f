// Gradients by central differences in float64: what every differentiable operator is held to.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "tensor/rng.h"

namespace headroom::testing {

using autograd::Variable;

/// Standard normal numbers, the same for the same name.
inline Tensor random_tensor(const Shape& shape, const std::string& name, DType dtype = DType::f64) {
  Tensor x = Tensor::empty(shape, dtype);
  fill_normal(x, RandomStream(7, name), 1.0);
  return x;
}

inline double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    sum += a.data<double>()[i] * b.data<double>()[i];
  }
  return sum;
}

/// Compares the gradient of sum(f(inputs) * dy), for a random dy, with central differences, for
/// every element of every input. The step of 1e-6 leaves errors near 1e-9 in float64; wrong
/// mathematics shows at 1e-2.
inline void expect_gradient(const std::function<Variable(const std::vector<Variable>&)>& f,
                            const std::vector<Tensor>& inputs, double tolerance = 1e-7) {
  std::vector<Variable> leaves;
  for (const Tensor& x : inputs) {
    leaves.emplace_back(x.clone(), true);
  }
  const Variable y = f(leaves);
  const Tensor dy = random_tensor(y.shape(), "upstream");
  y.backward(dy);
  const autograd::NoGrad no_grad;
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_TRUE(leaves[i].grad().defined()) << "input " << i << " got no gradient";
    ASSERT_EQ(leaves[i].grad().shape(), inputs[i].shape());
    double* x = Tensor(leaves[i].value()).data<double>();
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const double before = x[j], h = 1e-6;
      x[j] = before + h;
      leaves[i].changed();
      const double above = dot(f(leaves).value(), dy);
      x[j] = before - h;
      leaves[i].changed();
      const double below = dot(f(leaves).value(), dy);
      x[j] = before;
      leaves[i].changed();
      const double expected = (above - below) / (2 * h), got = leaves[i].grad().data<double>()[j];
      ASSERT_NEAR(got, expected, tolerance * std::max(1.0, std::abs(expected)))
          << "input " << i << ", element " << j;
    }
  }
}

}  // namespace headroom::testing
