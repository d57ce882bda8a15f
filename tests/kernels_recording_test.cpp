// A recorded step does again what it did, on every device, and no more.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/trace.h"
#include "tests/test_device.h"

namespace headroom::testing {
namespace {

using kernels::Transpose;

Tensor numbers(const std::vector<float>& values) {
  return there(Tensor::from(values, {static_cast<int64_t>(values.size())}));
}
using Floats = std::vector<float>;

TEST(Recording, RunsTheStepWhenItIsRecordedAndAtEveryReplay) {
  Tensor x = numbers({1, 2}), sum = numbers({0, 0});
  const Tensor w = there(Tensor::from(Floats{1, 2, 3, 4}, {2, 2}));
  Tensor out;
  const auto recording = test_backend().record([&] {
    kernels::Backend& device = kernels::backend(test_device());
    device.add(x, sum, sum);
    out = Tensor::zeros({1, 2}, DType::f32, test_device());
    device.matmul(sum.reshape({1, 2}), Transpose::no, w, Transpose::yes, {out, true});
  });
  EXPECT_EQ(out.to_vector<float>(), (Floats{5, 11}));
  x.copy_from(Tensor::from(Floats{10, 20}, {2}));
  recording->replay();
  EXPECT_EQ(sum.to_vector<float>(), (Floats{11, 22}));
  EXPECT_EQ(out.to_vector<float>(), (Floats{55, 121}));
}

/// What the step was given by value and let go of is still there.
TEST(Recording, KeepsWhatItWorksOn) {
  Tensor x = numbers({1, 2, 3}), copied;
  const auto recording = test_backend().record([&] {
    Tensor between = Tensor::empty({3}, DType::f32, test_device());
    test_backend().add(x, x, between);
    Tensor other = between.clone();
    between = {};
    copied = other.clone();
  });
  const Tensor taken = numbers({7, 7, 7});  // would get the memory of what was let go
  x.copy_from(Tensor::from(Floats{4, 5, 6}, {3}));
  recording->replay();
  EXPECT_EQ(copied.to_vector<float>(), (Floats{8, 10, 12}));
  EXPECT_EQ(taken.to_vector<float>(), (Floats{7, 7, 7}));
}

/// A processor casts a bf16 row by another kernel before it multiplies.
TEST(Recording, OfAProcessorKeepsNoKernelWithinAKernel) {
  const Tensor row = Tensor::from(std::vector<bf16>{bf16(1.0F), bf16(2.0F)}, {1, 2});
  const std::vector<kernels::Weights> weights = {
      {.values = Tensor::from(Floats{1, 1, 1, -1}, {2, 2}), .scales = {}}};
  std::vector<Tensor> y = {Tensor::zeros({1, 2}, DType::f32)};
  kernels::Trace trace;
  const auto recording =
      kernels::backend(kCpu).record([&] { kernels::backend(kCpu).linear(row, weights, y); });
  EXPECT_EQ(y[0].to_vector<float>(), (Floats{3, -1}));
  y[0].copy_from(Tensor::from(Floats{0, 0}, {1, 2}));
  recording->replay();
  EXPECT_EQ(y[0].to_vector<float>(), (Floats{3, -1}));
  std::vector<std::string> names;
  for (const kernels::TraceEvent& event : trace.events()) {
    names.emplace_back(event.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"linear", "copy", "linear"}));
}

TEST(Recording, IsOverWhenItsStepFails) {
  Tensor x = numbers({1});
  EXPECT_THROW(test_backend().record([&] { throw Error("no"); }), Error);
  Tensor sum = numbers({0});
  const auto recording = test_backend().record([&] { test_backend().add(x, x, sum); });
  test_backend().fill(x, 3.0);  // not part of it
  recording->replay();
  EXPECT_EQ(sum.to_vector<float>(), Floats{6});
  EXPECT_EQ(x.to_vector<float>(), Floats{3});
}

TEST(Recording, OfAProcessorRefusesToTellNumbers) {
  const Tensor x = Tensor::from(Floats{1, 2}, {2});
  kernels::Backend& cpu = kernels::backend(kCpu);
  std::string message;
  try {
    cpu.record([&] { kernels::backend(kCpu).largest(x); });
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_EQ(message, "[record] a step that is recorded can't ask for largest: a replay would not");
}

}  // namespace
}  // namespace headroom::testing
