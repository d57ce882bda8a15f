// Rows of a table by index, and the scatter-add that is its gradient.
#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/types.h"

namespace headroom::kernels::cpu {

void CpuBackend::embedding(const Tensor& ids, const Tensor& w, Tensor& y) {
  for_type(y.dtype(), [&]<class S, class C>() {
    const int64_t width = w.dim(1);
    const int32_t* pid = ids.data<int32_t>();
    const C* pw = w.data<C>();
    S* py = y.data<S>();
    parallel_rows(ids.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const C* from = pw + pid[r] * width;
        std::transform(from, from + width, py + r * width, [](C value) { return S(value); });
      }
    });
  });
}

// Each thread owns columns, so that the rows of one index are added in order whatever the number of
// threads.
void CpuBackend::embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw) {
  for_type(dy.dtype(), [&]<class S, class C>() {
    const int64_t width = dw.tensor.dim(1);
    const int32_t* pid = ids.data<int32_t>();
    const S* pdy = dy.data<S>();
    C* pdw = dw.data<C>();
    if (!dw.add) {
      Tensor(dw.tensor).zero();
    }
    parallel_ranges(width, 64, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < ids.numel(); ++r) {
        C* to = pdw + pid[r] * width;
        const S* from = pdy + r * width;
        for (int64_t c = begin; c < end; ++c) {
          to[c] += static_cast<C>(from[c]);
        }
      }
    });
  });
}

}  // namespace headroom::kernels::cpu
