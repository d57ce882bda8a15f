// Numbers that change places: columns side by side, and heads in front of rows.
#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/types.h"

namespace headroom::kernels::cpu {

namespace {

template <class S, class C>
void put(const S* x, int64_t width, S* y, bool add) {
  if (!add) {
    std::copy_n(x, width, y);
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    y[i] = S(static_cast<C>(y[i]) + static_cast<C>(x[i]));
  }
}

}  // namespace

void CpuBackend::copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                              int64_t width) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const int64_t x_width = x.dim(-1), y_width = y.tensor.dim(-1);
    const S* px = x.data<S>() + x_column;
    S* py = y.data<S>() + y_column;
    parallel_rows(x.dim(0), width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        put<S, C>(px + r * x_width, width, py + r * y_width, y.add);
      }
    });
  });
}

// Threads divide the longer axis, the rows, whichever side it is on: each keeps to its own.
void CpuBackend::swap_axes(const Tensor& x, const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const int64_t A = x.dim(0), B = x.dim(1), width = x.dim(2);
    const bool by_first = A >= B;
    const S* px = x.data<S>();
    S* py = y.data<S>();
    parallel_rows(std::max(A, B), std::min(A, B) * width, [&](int64_t begin, int64_t end) {
      for (int64_t a = by_first ? begin : 0; a < (by_first ? end : A); ++a) {
        for (int64_t b = by_first ? 0 : begin; b < (by_first ? B : end); ++b) {
          put<S, C>(px + (a * B + b) * width, width, py + (b * A + a) * width, y.add);
        }
      }
    });
  });
}

}  // namespace headroom::kernels::cpu
