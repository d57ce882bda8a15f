// Cross-entropy over logits that exist, and the head and its loss as one operator.
#include "autograd/ops.h"
#include "bench/bench.h"

namespace headroom::bench {

namespace {

struct Size {
  const char* name;
  int64_t rows, width, vocabulary;
};

void add_cross_entropy(const Size& s, DType gradient) {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  add(fmt::format("cross_entropy/{}/{}", s.name, name_of(gradient)), [=] {
    const Tensor logits = normal({s.rows, s.vocabulary}, DType::f32);
    const Tensor targets = integers({s.rows}, s.vocabulary);
    Tensor losses = normal({s.rows}, DType::f32), dlogits = normal(logits.shape(), gradient);
    return memory_bound(
        [=]() mutable { cpu.cross_entropy(logits, targets, 1e-3, losses, dlogits); },
        {logits, dlogits});
  });
}

void add_linear_cross_entropy(const Size& s, DType type) {
  add(fmt::format("linear_cross_entropy/{}/{}", s.name, name_of(type)), [=] {
    const autograd::Variable x(normal({s.rows, s.width}, type), true);
    const autograd::Variable w(normal({s.vocabulary, s.width}, DType::f32), true);
    const Tensor targets = integers({s.rows}, s.vocabulary);
    const double product = 2.0 * static_cast<double>(s.rows * s.width * s.vocabulary);
    return Work{[=] { autograd::linear_cross_entropy(x, w, targets); }, 0, 3 * product, type};
  });
}

}  // namespace

void add_cases() {
  for (const Size& s : {Size{"gqa", 4096, 256, 65}, Size{"124m", 1024, 768, 50257}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      add_cross_entropy(s, type);
      add_linear_cross_entropy(s, type);
    }
  }
}

}  // namespace headroom::bench
