// Loops over elements: conversions, sums, the soft cap, dropout, and the bias with its gradient.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"
#include "tensor/visit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/column_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

template <class From, class To>
void cast_vectors(const From* x, To* y, int64_t n) {
  parallel_ranges(n, kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const hn::ScalableTag<float> d;
    each_vector(d, begin, end, [&](At at) HWY_ATTR { store(load(d, x, at), d, y, at); });
  });
}

void CastBetweenF32AndBf16(const Tensor& x, Tensor& y) {
  if (x.dtype() == DType::f32) {
    cast_vectors(x.data<float>(), y.data<bf16>(), x.numel());
  } else {
    cast_vectors(x.data<bf16>(), y.data<float>(), x.numel());
  }
}

void Scale(const Tensor& x, double a, const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S* px = x.data<S>();
    S* py = y.data<S>();
    parallel_ranges(x.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      const auto factor = hn::Set(d, static_cast<C>(a));
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        store_into(hn::Mul(factor, load(d, px, at)), d, py, at, y.add);
      });
    });
  });
}

void Add(const Tensor& a, const Tensor& b, Tensor& y) {
  for_type(a.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S *pa = a.data<S>(), *pb = b.data<S>();
    S* py = y.data<S>();
    parallel_ranges(a.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        store(hn::Add(load(d, pa, at), load(d, pb, at)), d, py, at);
      });
    });
  });
}

void Softcap(const Tensor& x, double cap, Tensor& y) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S* px = x.data<S>();
    S* py = y.data<S>();
    parallel_ranges(x.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      const auto limit = hn::Set(d, static_cast<C>(cap)),
                 inverse = hn::Set(d, static_cast<C>(1 / cap));
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        store(hn::Mul(limit, hn::Tanh(d, hn::Mul(load(d, px, at), inverse))), d, py, at);
      });
    });
  });
}

void SoftcapBackward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) {
  for_type(y.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S *py = y.data<S>(), *pdy = dy.data<S>();
    S* pdx = dx.data<S>();
    parallel_ranges(y.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      const auto inverse = hn::Set(d, static_cast<C>(1 / cap)), one = hn::Set(d, C(1));
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        const auto t = hn::Mul(load(d, py, at), inverse);
        store_into(hn::Mul(load(d, pdy, at), hn::NegMulAdd(t, t, one)), d, pdx, at, dx.add);
      });
    });
  });
}

void SumRows(const Tensor& x, const Into& out) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const int64_t width = out.tensor.numel(), rows = x.numel() / width;
    const S* px = x.data<S>();
    ColumnSums<C> sums(rows, width, 1);
    sums.each_row([&](int64_t r, C* part) HWY_ATTR {
      const hn::ScalableTag<C> d;
      each_vector(d, 0, width, [&](At at) HWY_ATTR {
        ColumnSums<C>::add(load(d, px + r * width, at), part, at);
      });
    });
    sums.write(0, out);
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(CastBetweenF32AndBf16);
HWY_EXPORT(Scale);
HWY_EXPORT(Add);
HWY_EXPORT(Softcap);
HWY_EXPORT(SoftcapBackward);
HWY_EXPORT(SumRows);

namespace {

// f64 against f32 directly; the 16-bit types by way of f32.
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, double>) {
    return static_cast<float>(x);
  } else {
    return To(static_cast<float>(x));
  }
}

}  // namespace

void CpuBackend::cast(const Tensor& x, Tensor& y) {
  if (x.dtype() == y.dtype()) {
    y.copy_from(x);
  } else if (std::max(x.dtype(), y.dtype()) == DType::bf16 &&
             std::min(x.dtype(), y.dtype()) == DType::f32) {
    HWY_DYNAMIC_DISPATCH(CastBetweenF32AndBf16)(x, y);
  } else {
    // No hot path needs these: element by element.
    with_floats(x, [&]<class From>(const From* from) {
      with_floats(y, [&]<class To>(To* to) {
        parallel_ranges(x.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
          std::transform(from + begin, from + end, to + begin, convert<To, From>);
        });
      });
    });
  }
}

void CpuBackend::fill(Tensor& x, double value) {
  for_type(x.dtype(), [&]<class S, class C>() {
    std::fill_n(x.data<S>(), x.numel(), S(static_cast<C>(value)));
  });
}

// The mask is made of the stream's numbers alone, so forward and backward agree without storing it.
void CpuBackend::dropout(const Tensor& x, double p, const RandomStream& stream, int64_t first,
                         const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const S* px = x.data<S>();
    S* py = y.data<S>();
    const auto keep = static_cast<C>(1 / (1 - p));
    const auto threshold = static_cast<uint64_t>(p * 4294967296.0);
    parallel_ranges(x.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
      std::array<uint32_t, 4> block{};  // one Philox block serves four neighbours
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = first + i;
        if (i == begin || n % 4 == 0) {
          block = stream.block(static_cast<uint64_t>(n / 4));
        }
        const C kept =
            block[static_cast<size_t>(n % 4)] >= threshold ? static_cast<C>(px[i]) * keep : C(0);
        py[i] = S(y.add ? static_cast<C>(py[i]) + kept : kept);
      }
    });
  });
}

void CpuBackend::scale(const Tensor& x, double a, const Into& y) {
  HWY_DYNAMIC_DISPATCH(Scale)(x, a, y);
}
void CpuBackend::add(const Tensor& a, const Tensor& b, Tensor& y) {
  HWY_DYNAMIC_DISPATCH(Add)(a, b, y);
}
void CpuBackend::softcap(const Tensor& x, double cap, Tensor& y) {
  HWY_DYNAMIC_DISPATCH(Softcap)(x, cap, y);
}
void CpuBackend::softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) {
  HWY_DYNAMIC_DISPATCH(SoftcapBackward)(y, cap, dy, dx);
}
void CpuBackend::sum_rows(const Tensor& x, const Into& out) {
  HWY_DYNAMIC_DISPATCH(SumRows)(x, out);
}

}  // namespace headroom::kernels::cpu
#endif
