// What the benchmark programs share: operands, cases, and the table that puts every kernel beside
// the ceiling of this machine that holds it back.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

#include "kernels/backend.h"

namespace headroom::bench {

/// Normal numbers; i32 numbers in [0, below). The same in every run.
Tensor normal(const Shape& shape, DType type);
Tensor integers(const Shape& shape, int64_t below);

/// One call of a kernel, and the work in it.
struct Work {
  std::function<void()> call;
  /// Bytes of memory touched, which stand beside the read bandwidth. Each counts once, written or
  /// read or both: a line that is written is read first, and written back beside other reads.
  double bytes = 0;
  /// Where it isn't 0 it stands beside the peak of arithmetic on `operands` instead.
  double flop = 0;
  DType operands = DType::f32;
};
/// A kernel that touches each of `tensors`, absent ones aside, and waits for memory.
Work memory_bound(std::function<void()> call, std::initializer_list<Tensor> tensors);

/// Registers a case; `make` allocates its operands when it is its turn.
void add(const std::string& name, std::function<Work()> make);
/// Registers "name/size/type" for a (rows, width) that a training step at the published setting
/// has (and a cache holds), one that no cache holds, and for f32 and bf16.
void add_sizes(const std::string& name,
               const std::function<Work(const Shape& shape, DType type)>& make);

/// Each program's cases. The main function that they share takes Google Benchmark's options and
/// --threads=N.
void add_cases();

}  // namespace headroom::bench
