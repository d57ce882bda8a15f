// Rotary position embedding (Su et al., arXiv 2104.09864): a thread turns one pair.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

/// Pairs are (i, i + D/2), or (2i, 2i + 1) where interleaved. Both numbers of a pair are read
/// before one is written: y may be x.
template <class S, class C>
__global__ void rotate_pairs(const S* x, const C* table, S* y, bool add, bool interleaved, C sign,
                             int64_t pairs, int64_t heads, int64_t half, int64_t table_rows) {
  for (int64_t n = first_item(); n < pairs; n += item_step()) {
    const int64_t head = n / half, i = n % half;
    const C* angle = table + (head / heads % table_rows * half + i) * 2;
    const C cosine = angle[0], sine = sign * angle[1];
    const int64_t first = head * 2 * half + (interleaved ? 2 * i : i);
    const int64_t second = first + (interleaved ? 1 : half);
    const C a = widen<C>(x[first]), b = widen<C>(x[second]);
    put(a * cosine - b * sine, y + first, add);
    put(a * sine + b * cosine, y + second, add);
  }
}

template <class C>
__global__ void make_table(const int32_t* positions, double base, C* table, int64_t count,
                           int64_t half) {
  for (int64_t n = first_item(); n < count; n += item_step()) {
    const auto part = static_cast<double>(n % half) / static_cast<double>(half);
    const double angle = positions[n / half] * pow(base, -part);
    table[2 * n] = static_cast<C>(cos(angle));
    table[2 * n + 1] = static_cast<C>(sin(angle));
  }
}

}  // namespace

void CudaBackend::rope_table(const Tensor& positions, double base, Tensor& table) {
  const int64_t half = table.dim(1), count = positions.numel() * half;
  for_type(table.dtype(), [&]<class S, class C>() {
    launch(make_table<C>, blocks_for(count), kThreads, 0, positions.data<int32_t>(), base,
           table.data<C>(), count, half);
  });
}

void CudaBackend::rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
                       const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const int64_t pairs = x.numel() / 2;
    launch(rotate_pairs<S, C>, blocks_for(pairs), kThreads, 0, x.data<S>(), table.data<C>(),
           y.data<S>(), y.add, style == RopeStyle::interleaved,
           direction == Direction::forward ? C(1) : C(-1), pairs, x.dim(-2), x.dim(-1) / 2,
           table.dim(0));
  });
}

}  // namespace headroom::kernels::cuda
