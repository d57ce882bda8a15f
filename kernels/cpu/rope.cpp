// Rotary position embedding (Su et al., arXiv 2104.09864).
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

// Pairs are (i, i + D/2), as Hugging Face stores them. sin is already negated when rotating back.
template <class S, class C>
HWY_INLINE void rotate_half(const S* x, const C* cosines, const C* sines, int64_t half, S* y,
                            bool add) {
  const hn::ScalableTag<C> d;
  each_vector(d, 0, half, [&](At at) HWY_ATTR {
    const auto a = load(d, x, at), b = load(d, x + half, at), c = load(d, cosines, at),
               s = load(d, sines, at);
    store_into(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, y, at, add);
    store_into(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + half, at, add);
  });
}

// Pairs are (2i, 2i + 1), as published.
template <class S, class C>
HWY_INLINE void rotate_interleaved(const S* x, const C* cosines, const C* sines, int64_t half, S* y,
                                   bool add) {
  for (int64_t i = 0; i < half; ++i) {
    const C a = static_cast<C>(x[2 * i]), b = static_cast<C>(x[2 * i + 1]);
    const C first = a * cosines[i] - b * sines[i], second = a * sines[i] + b * cosines[i];
    y[2 * i] = S(add ? static_cast<C>(y[2 * i]) + first : first);
    y[2 * i + 1] = S(add ? static_cast<C>(y[2 * i + 1]) + second : second);
  }
}

void Rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
          const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const int64_t size = x.dim(-1), heads = x.dim(-2), half = size / 2,
                  rows = x.numel() / (heads * size);
    const int64_t table_rows = table.dim(0);
    const S* px = x.data<S>();
    S* py = y.data<S>();
    const C* angles = table.data<C>();
    const C sign = direction == Direction::forward ? C(1) : C(-1);
    parallel_rows(rows, heads * size, [&](int64_t begin, int64_t end) HWY_ATTR {
      std::vector<C> row(static_cast<size_t>(2 * half));  // cosines, then sines
      for (int64_t r = begin; r < end; ++r) {
        const C* pairs = angles + (r % table_rows) * size;
        for (int64_t i = 0; i < half; ++i) {
          row[static_cast<size_t>(i)] = pairs[2 * i];
          row[static_cast<size_t>(half + i)] = sign * pairs[2 * i + 1];
        }
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = (r * heads + h) * size;
          if (style == RopeStyle::half) {
            rotate_half<S, C>(px + at, row.data(), row.data() + half, half, py + at, y.add);
          } else {
            rotate_interleaved<S, C>(px + at, row.data(), row.data() + half, half, py + at, y.add);
          }
        }
      }
    });
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(Rope);

void CpuBackend::rope_table(const Tensor& positions, double base, Tensor& table) {
  const int64_t half = table.dim(1);
  const int32_t* p = positions.data<int32_t>();
  std::vector<double> frequency(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    frequency[static_cast<size_t>(i)] =
        std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
  }
  for_type(table.dtype(), [&]<class S, class C>() {
    S* out = table.data<S>();
    parallel_rows(positions.numel(), 16 * half, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle = p[r] * frequency[static_cast<size_t>(i)];
          out[(r * half + i) * 2] = S(static_cast<C>(std::cos(angle)));
          out[(r * half + i) * 2 + 1] = S(static_cast<C>(std::sin(angle)));
        }
      }
    });
  });
}

void CpuBackend::rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
                      const Into& y) {
  HWY_DYNAMIC_DISPATCH(Rope)(x, table, style, direction, y);
}

}  // namespace headroom::kernels::cpu
#endif
