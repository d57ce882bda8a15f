// Loops over elements: conversions, sums, the soft cap, dropout, and the bias with its gradient.
#include "bench/bench.h"
#include "tensor/rng.h"

namespace headroom::bench {

void add_cases() {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  add_sizes("fill", [](const Shape& shape, DType type) {
    Tensor x = normal(shape, type);
    return memory_bound([=]() mutable { cpu.fill(x, 0.5); }, {x});
  });
  add_sizes("cast_from", [](const Shape& shape, DType type) {
    const Tensor x = normal(shape, type);
    Tensor y = normal(shape, type == DType::f32 ? DType::bf16 : DType::f32);
    return memory_bound([=]() mutable { cpu.cast(x, y); }, {x, y});
  });
  for (const bool into : {false, true}) {
    add_sizes(into ? "scale_into" : "scale", [into](const Shape& shape, DType type) {
      const Tensor x = normal(shape, type), y = normal(shape, type);
      return memory_bound([=] { cpu.scale(x, 1e-3, {y, into}); }, {x, y});
    });
  }
  add_sizes("add", [](const Shape& shape, DType type) {
    const Tensor a = normal(shape, type), b = normal(shape, type);
    Tensor y = normal(shape, type);
    return memory_bound([=]() mutable { cpu.add(a, b, y); }, {a, b, y});
  });
  add_sizes("softcap", [](const Shape& shape, DType type) {
    const Tensor x = normal(shape, type);
    Tensor y = normal(shape, type);
    return memory_bound([=]() mutable { cpu.softcap(x, 15, y); }, {x, y});
  });
  add_sizes("softcap_backward", [](const Shape& shape, DType type) {
    const Tensor y = normal(shape, type), dy = normal(shape, type), dx = normal(shape, type);
    return memory_bound([=] { cpu.softcap_backward(y, 15, dy, {dx}); }, {y, dy, dx});
  });
  add_sizes("dropout", [](const Shape& shape, DType type) {
    const Tensor x = normal(shape, type), y = normal(shape, type);
    const RandomStream stream(1, "dropout");
    return memory_bound([=] { cpu.dropout(x, 0.1, stream, 0, {y}); }, {x, y});
  });
  add_sizes("sum_rows", [](const Shape& shape, DType type) {
    const Tensor x = normal(shape, type), sum = normal({shape.dim(1)}, DType::f32);
    return memory_bound([=] { cpu.sum_rows(x, {sum}); }, {x});
  });
}

}  // namespace headroom::bench
