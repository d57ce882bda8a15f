// Sums over the rows of a matrix, column by column, made in one pass over the rows: each part of
// the rows has its own sums, which are added in order, so that no result depends on the number of
// threads. Included once per SIMD target, as simd-inl.h.

#if defined(HEADROOM_COLUMN_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_COLUMN_SUMS_INL_H_
#undef HEADROOM_COLUMN_SUMS_INL_H_
#else
#define HEADROOM_COLUMN_SUMS_INL_H_
#endif

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

template <class C>
class ColumnSums {
 public:
  using D = hn::ScalableTag<C>;

  /// For `count` matrices of one shape; 0 holds no memory.
  ColumnSums(int64_t rows, int64_t width, int64_t count)
      : rows_(rows),
        width_(width),
        padded_((width + kLanes - 1) / kLanes * kLanes),
        count_(count),
        sums_(Tensor::empty({parts() * count, padded_}, kDTypeOf<C>)) {}

  /// Calls f(row, sums) for every row, those of a part one after the other; sums points to the
  /// part's sums of the first matrix, which add() takes, those of the next are stride() further.
  template <class F>
  void each_row(const F& f) {
    const int64_t grain = std::max<int64_t>(1, kElementGrain / (kPartRows * width_));
    parallel_ranges(parts(), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
      for (int64_t part = begin; part < end; ++part) {
        C* sums = sums_.template data<C>() + part * count_ * padded_;
        std::fill_n(sums, count_ * padded_, C(0));
        for (int64_t r = part * kPartRows; r < std::min(rows_, (part + 1) * kPartRows); ++r) {
          f(r, sums);
        }
      }
    });
  }
  int64_t stride() const { return padded_; }

  /// sums[at] += v, whose lanes beyond the row are 0.
  HWY_INLINE static void add(hn::Vec<D> v, C* sums, At at) {
    const D d;
    hn::StoreU(hn::Add(v, hn::LoadU(d, sums + at.i)), d, sums + at.i);
  }

  /// out (+)= the sums of matrix i.
  void write(int64_t i, const Into& out) const {
    if (!out.wanted()) {
      return;
    }
    const D d;
    C* to = out.data<C>();
    each_vector(d, 0, width_, [&](At at) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (int64_t part = 0; part < parts(); ++part) {
        const C* sums = sums_.template data<C>() + (part * count_ + i) * padded_;
        sum = hn::Add(sum, hn::LoadU(d, sums + at.i));
      }
      store_into(sum, d, to, at, out.add);
    });
  }

 private:
  static constexpr int64_t kLanes = hn::MaxLanes(D());
  static constexpr int64_t kPartRows = 128;
  int64_t parts() const { return (rows_ + kPartRows - 1) / kPartRows; }

  int64_t rows_, width_, padded_, count_;
  Tensor sums_;  // (parts, count, padded width)
};

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
