// Products of a training step, beside the FMA peak, and products with the few rows of decoding,
// beside the bandwidth at which weights can be read.
#include "bench/bench.h"

namespace headroom::bench {

namespace {

using kernels::Transpose;

/// y (rows, out) = x (rows, in) times the transpose of w (out, in).
struct Linear {
  const char* name;
  int64_t rows, in, out;
};

void add_linear(const Linear& l, DType type) {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  const auto add_product = [&](const char* pass, auto make_call) {
    add(fmt::format("{}/{}/{}", l.name, pass, name_of(type)), [l, type, make_call] {
      const Tensor x = normal({l.rows, l.in}, type), w = normal({l.out, l.in}, type),
                   y = normal({l.rows, l.out}, type), dw = normal({l.out, l.in}, DType::f32);
      return Work{make_call(x, w, y, dw), 0, 2.0 * static_cast<double>(l.rows * l.in * l.out),
                  type};
    });
  };
  add_product("y", [](const Tensor& x, const Tensor& w, const Tensor& y, const Tensor&) {
    return [=] { cpu.matmul(x, Transpose::no, w, Transpose::yes, {y}); };
  });
  add_product("dx", [](const Tensor& x, const Tensor& w, const Tensor& y, const Tensor&) {
    return [=] { cpu.matmul(y, Transpose::no, w, Transpose::no, {x}); };
  });
  add_product("dw", [](const Tensor& x, const Tensor&, const Tensor& y, const Tensor& dw) {
    return [=] { cpu.matmul(y, Transpose::yes, x, Transpose::no, {dw}); };
  });
}

/// Decoding's products, by weights in each type that inference stores.
void add_few_rows(int64_t rows, int64_t in, int64_t out, DType stored) {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  add(fmt::format("rows={}/{}-{}/{}", rows, in, out, name_of(stored)), [=] {
    const Tensor x = normal({rows, in}, DType::f32), y = normal({rows, out}, DType::f32);
    kernels::Weights w{normal({out, in}, stored == DType::i8 ? DType::f32 : stored), {}};
    if (stored == DType::i8) {
      kernels::Weights q{Tensor::empty({out, in}, DType::i8), Tensor::empty({out}, DType::f32)};
      cpu.quantize_rows(w.values, q);
      w = q;
    }
    return memory_bound(
        [=] {
          Tensor result = y;
          cpu.linear(x, std::span(&w, 1), std::span(&result, 1));
        },
        {w.values});
  });
}

}  // namespace

void add_cases() {
  const Linear linears[] = {
      {"gqa/q,o/256-256", 4096, 256, 256},     {"gqa/k,v/256-64", 4096, 256, 64},
      {"gqa/up/256-1024", 4096, 256, 1024},    {"gqa/down/1024-256", 4096, 1024, 256},
      {"gqa/head/256-65", 4096, 256, 65},      {"124m/q,o/768-768", 1024, 768, 768},
      {"124m/k,v/768-256", 1024, 768, 256},    {"124m/up/768-3072", 1024, 768, 3072},
      {"124m/down/3072-768", 1024, 3072, 768}, {"124m/head/768-50257", 1024, 768, 50257}};
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const Linear& l : linears) {
      add_linear(l, type);
    }
  }
  for (const DType type : {DType::f32, DType::bf16, DType::i8}) {
    for (const int64_t rows : {1, 2, 4, 8, 16, 32}) {
      add_few_rows(rows, 768, 50257, type);
    }
    add_few_rows(1, 256, 1024, type);
  }
}

}  // namespace headroom::bench
