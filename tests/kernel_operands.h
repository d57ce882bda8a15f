// Random operands for the tests of kernels, in every type, and comparing what a kernel makes of
// them with its definition in float64.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/golden.h"
#include "tests/test_device.h"

namespace headroom::testing {

/// A type and how far from the truth its results may be.
struct Precision {
  const char* name;
  DType type;
  double tolerance;
};
inline std::ostream& operator<<(std::ostream& out, const Precision& p) { return out << p.name; }

inline std::vector<double> normals(int64_t count, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = normal(random);
  return values;
}

inline Tensor as(DType type, const std::vector<double>& values, const Shape& shape) {
  if (type == DType::f64) return Tensor::from(values, shape);
  const std::vector<float> floats(values.begin(), values.end());
  if (type == DType::f32) return Tensor::from(floats, shape);
  std::vector<bf16> rounded;
  for (const float value : floats) rounded.emplace_back(value);
  return Tensor::from(rounded, shape);
}

inline Tensor as(DType type, const Tensor& x) {
  return x.defined() ? as(type, to_doubles(x), x.shape()) : x;
}

/// Normal numbers as a kernel gets them, and the same numbers in f64, exactly.
struct Operand {
  Tensor tensor;
  std::vector<double> exact;
  Operand(DType type, const std::vector<double>& values, const Shape& shape)
      : tensor(as(type, values, shape)), exact(to_doubles(tensor)) {}
  Operand(DType type, const Shape& shape, std::mt19937& random)
      : Operand(type, normals(shape.numel(), random), shape) {}
  double operator[](int64_t i) const { return exact[static_cast<size_t>(i)]; }
};

/// The same with its tensor on the tested device.
struct DeviceOperand : Operand {
  DeviceOperand(DType type, const std::vector<double>& values, const Shape& shape)
      : Operand(type, values, shape) {
    tensor = there(tensor);
  }
  DeviceOperand(DType type, const Shape& shape, std::mt19937& random)
      : DeviceOperand(type, normals(shape.numel(), random), shape) {}
};

using Elements = std::function<double(int64_t)>;  // what element i should be

/// Every element within bound * max(1, |expected|); an expected infinity exactly.
inline void expect_elements(const Tensor& actual, const Elements& expected, double bound,
                            const std::string& what) {
  const std::vector<double> values = to_doubles(actual);
  for (int64_t i = 0; i < actual.numel(); ++i) {
    const double got = values[static_cast<size_t>(i)], want = expected(i);
    const double error = std::abs(got - want);
    ASSERT_TRUE(got == want || error <= bound * std::max(1.0, std::abs(want)))
        << what << " " << to_string(actual.shape()) << ", element " << i << ": " << got
        << ", expected " << want;
  }
}

/// Runs a kernel that overwrites its output, on one full of NaN; and on one full of numbers where
/// it may add to them.
inline void expect_output(DType type, const Shape& shape,
                          const std::function<void(const kernels::Into&)>& run,
                          const Elements& expected, double bound, const std::string& what,
                          bool adds = true) {
  const std::vector<double> nan(static_cast<size_t>(shape.numel()), std::nan(""));
  const Tensor fresh = there(as(type, nan, shape));
  run({fresh, false});
  expect_elements(fresh, expected, bound, what);
  if (adds) {
    std::mt19937 random(99);
    const DeviceOperand before(type, shape, random);
    run({before.tensor, true});
    expect_elements(
        before.tensor, [&](int64_t i) { return before[i] + expected(i); }, bound, what + " added");
  }
}

/// Whether a kernel gives the same bits with 1, 2 and 5 threads; on a GPU, each time.
inline void expect_same_for_any_threads(const std::function<std::vector<Tensor>()>& run) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<Tensor> alone = run();
  for (const int threads : {2, 5}) {
    omp_set_num_threads(threads);
    const std::vector<Tensor> together = run();
    ASSERT_EQ(together.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      ASSERT_EQ(together[i].nbytes(), alone[i].nbytes());
      EXPECT_EQ(std::memcmp(here(together[i]).raw(), here(alone[i]).raw(), alone[i].nbytes()), 0)
          << "result " << i << " with " << threads << " threads";
    }
  }
  omp_set_num_threads(before);
}

/// The types of activations. The bound of bf16 is one rounding of the result, so a kernel that
/// rounds on the way fails.
inline const std::vector<Precision> kActivationTypes = {
    {"f64", DType::f64, 1e-13}, {"f32", DType::f32, 6e-6}, {"bf16", DType::bf16, 0x1.04p-8}};

/// Lengths around vectors of 4, 8 and 16 lanes, and one that several threads share.
inline const std::vector<int64_t> kLengths = {1, 3, 8, 17, 65, 3 * 16384 + 5};

inline std::string name_of_precision(const ::testing::TestParamInfo<Precision>& info) {
  return info.param.name;
}

}  // namespace headroom::testing
