// Rows of a table by index, and the scatter-add that is its gradient.
#include "bench/bench.h"

namespace headroom::bench {

void add_cases() {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  struct Size {
    const char* name;
    int64_t tokens, width, vocabulary;
  };
  for (const Size& s : {Size{"gqa", 4096, 256, 65}, Size{"124m", 4096, 768, 50257}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto name = [&](const char* pass) {
        return fmt::format("embedding{}/{}/{}", pass, s.name, name_of(type));
      };
      add(name(""), [=] {
        const Tensor ids = integers({s.tokens}, s.vocabulary);
        const Tensor w = normal({s.vocabulary, s.width}, DType::f32);
        Tensor y = normal({s.tokens, s.width}, type);
        const Tensor read = w.rows(0, std::min(s.tokens, s.vocabulary));
        return memory_bound([=]() mutable { cpu.embedding(ids, w, y); }, {read, y});
      });
      add(name("_backward"), [=] {
        const Tensor ids = integers({s.tokens}, s.vocabulary);
        const Tensor dw = normal({s.vocabulary, s.width}, DType::f32);
        const Tensor dy = normal({s.tokens, s.width}, type);
        return memory_bound([=] { cpu.embedding_backward(ids, dy, {dw}); }, {dy, dw});
      });
    }
  }
}

}  // namespace headroom::bench
