// The rotation of queries and keys, in both styles, at the published setting and beyond any cache.
#include "bench/bench.h"

namespace headroom::bench {

void add_cases() {
  static kernels::Backend& cpu = kernels::backend(kCpu);
  using kernels::Direction;
  using kernels::RopeStyle;
  constexpr int64_t kContext = 256;
  for (const auto& [style_name, style] :
       {std::pair("half", RopeStyle::half), std::pair("interleaved", RopeStyle::interleaved)}) {
    for (const auto& [size, shape] :
         {std::pair("step", Shape{4096, 8, 32}), std::pair("memory", Shape{32768, 16, 64})}) {
      for (const DType type : {DType::f32, DType::bf16}) {
        const auto make = [style = style, shape = shape, type] {
          const Tensor x = normal(shape, type), y = normal(shape, type);
          const Tensor table = normal({kContext, shape.dim(2) / 2, 2}, DType::f32);
          return memory_bound([=] { cpu.rope(x, table, style, Direction::forward, {y}); }, {x, y});
        };
        add(fmt::format("rope_{}/{}/{}", style_name, size, name_of(type)), make);
      }
    }
  }
}

}  // namespace headroom::bench
