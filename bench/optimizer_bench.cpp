// The gradient's norm and AdamW, over the matrices of the published model and over 32 M numbers.
#include <vector>

#include "bench/bench.h"

namespace headroom::bench {

namespace {

struct Size {
  const char* name;
  int64_t tensors;
  Shape shape;
};

void add_size(const Size& s) {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  const auto parameters = static_cast<double>(s.tensors * s.shape.numel());
  add(fmt::format("sum_of_squares/{}", s.name), [=] {
    std::vector<Tensor> gradients;
    for (int64_t i = 0; i < s.tensors; ++i) {
      gradients.push_back(normal(s.shape, DType::f32));
    }
    Tensor sum = Tensor::empty({}, DType::f64);
    return Work{[=]() mutable { cpu.sum_of_squares(gradients, sum); }, 4 * parameters};
  });
  add(fmt::format("adamw/{}", s.name), [=] {
    std::vector<kernels::AdamWTensors> tensors;
    for (int64_t i = 0; i < s.tensors; ++i) {
      const auto draw = [&] { return normal(s.shape, DType::f32); };
      Tensor v = draw();
      cpu.fill(v, 1.0);  // means of squares
      tensors.push_back({draw(), draw(), draw(), v, 0.1});
    }
    const kernels::AdamWStep step{1e-3, 0.9, 0.95,
                                  1e-8, 1,   Tensor::from(std::vector<double>{1}, {})};
    return Work{[=] { cpu.adamw(tensors, step); }, 4 * 4 * parameters};
  });
}

}  // namespace

void add_cases() {
  add_size({"gqa", 48, {256, 384}});
  add_size({"memory", 8, {2048, 2048}});
}

}  // namespace headroom::bench
