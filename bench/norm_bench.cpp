// Norms with the residual addition before them, and their gradients.
#include "bench/bench.h"

namespace headroom::bench {

void add_cases() {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  using kernels::Into;
  using kernels::NormKind;
  for (const auto& [name, kind] :
       {std::pair("layer_norm", NormKind::layer_norm), std::pair("rms_norm", NormKind::rms_norm)}) {
    const auto forward = [kind = kind](bool residual) {
      return [=](const Shape& shape, DType type) {
        const Tensor x = normal(shape, type), w = normal({shape.dim(1)}, DType::f32);
        const Tensor delta = residual ? normal(shape, type) : Tensor();
        Tensor sum = residual ? normal(shape, type) : Tensor(), y = normal(shape, type);
        Tensor stats = normal({shape.dim(0), 2}, DType::f32);
        return memory_bound([=]() mutable { cpu.norm(kind, x, delta, w, {}, 1e-6, sum, y, stats); },
                            {x, delta, sum, y, stats});
      };
    };
    add_sizes(name, forward(false));
    add_sizes(fmt::format("{}+add", name), forward(true));
    add_sizes(fmt::format("{}+add_backward", name), [kind = kind](const Shape& shape, DType type) {
      const Tensor x = normal(shape, type), w = normal({shape.dim(1)}, DType::f32);
      const Tensor dy = normal(shape, type), dsum = normal(shape, type), dx = normal(shape, type);
      const Tensor dw = normal({shape.dim(1)}, DType::f32);
      const Tensor stats = normal({shape.dim(0), 2}, DType::f32);
      return memory_bound(
          [=] { cpu.norm_backward(kind, x, w, stats, dy, dsum, {dx}, {dw}, Into{}); },
          {x, dy, dsum, dx, stats});
    });
  }
  // The norm of each head's queries and keys, without weights.
  for (const DType type : {DType::f32, DType::bf16}) {
    const Shape shape{4096, 8, 32};
    add(fmt::format("qk_norm/step/{}", name_of(type)), [=] {
      const Tensor x = normal(shape, type);
      Tensor y = normal(shape, type), stats = normal({4096 * 8, 2}, DType::f32), sum;
      return memory_bound(
          [=]() mutable { cpu.norm(NormKind::rms_norm, x, {}, {}, {}, 1e-6, sum, y, stats); },
          {x, y, stats});
    });
    add(fmt::format("qk_norm_backward/step/{}", name_of(type)), [=] {
      const Tensor x = normal(shape, type), dy = normal(shape, type), dx = normal(shape, type);
      const Tensor stats = normal({4096 * 8, 2}, DType::f32);
      return memory_bound(
          [=] { cpu.norm_backward(NormKind::rms_norm, x, {}, stats, dy, {}, {dx}, {}, {}); },
          {x, dy, dx, stats});
    });
  }
}

}  // namespace headroom::bench
