// Activations of the MLP and their derivatives.
#include <cmath>
#include <numbers>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

// 1 / (1 + exp(-x)). Below `lowest` it is 0 to the last bit that counts, and the exponential, which
// has its limits, isn't asked.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  using C = hn::TFromD<D>;
  const V one = hn::Set(d, C(1)), lowest = hn::Set(d, C(sizeof(C) == 4 ? -88 : -700));
  const V power = power_of(d, hn::Mul(hn::Max(x, lowest), hn::Set(d, -kNat<C>)));
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Div(one, hn::Add(one, power)));
}

// f(x) and f'(x) as functors over a vector.

// Hendrycks and Gimpel, arXiv 1606.08415: gelu(x) = x * Phi(x), here with tanh: u = sqrt(2/pi) (x +
// 0.044715 x^3), gelu = x (1 + tanh u) / 2. With s = sigmoid(2u) that is x s, and tanh u = 2s - 1.
struct GeluTanh {
  template <class D, class V>
  static HWY_INLINE V gate(D d, V x) {
    using C = hn::TFromD<D>;
    const V inner = hn::MulAdd(hn::Set(d, C(0.044715)), hn::Mul(x, x), hn::Set(d, C(1)));
    return sigmoid(d, hn::Mul(hn::Mul(hn::Set(d, C(2 * 0.797884560802865355879892)), x), inner));
  }
  template <class D, class V>
  static HWY_INLINE V value(D d, V x) {
    return hn::Mul(x, gate(d, x));
  }
  template <class D, class V>
  static HWY_INLINE V slope(D d, V x) {
    using C = hn::TFromD<D>;
    const V s = gate(d, x), one = hn::Set(d, C(1));
    const V du2 = hn::Mul(hn::Set(d, C(2 * 0.797884560802865355879892)),
                          hn::MulAdd(hn::Set(d, C(3 * 0.044715)), hn::Mul(x, x), one));
    return hn::MulAdd(hn::Mul(x, hn::Mul(s, hn::Sub(one, s))), du2, s);
  }
};

// The exact form; libm's erf, lane by lane.
struct GeluErf {
  template <class D, class V, class F>
  static HWY_INLINE V lanes(D d, V x, const F& f) {
    hn::TFromD<D> values[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
    hn::StoreU(x, d, values);
    for (size_t i = 0; i < hn::Lanes(d); ++i) {
      values[i] = f(values[i]);
    }
    return hn::LoadU(d, values);
  }
  template <class D, class V>
  static HWY_INLINE V value(D d, V x) {
    using C = hn::TFromD<D>;
    return lanes(
        d, x, [](C t) { return t * C(0.5) * (C(1) + std::erf(t * C(std::numbers::sqrt2 / 2))); });
  }
  template <class D, class V>
  static HWY_INLINE V slope(D d, V x) {
    using C = hn::TFromD<D>;
    return lanes(d, x, [](C t) {
      const C cdf = C(0.5) * (C(1) + std::erf(t * C(std::numbers::sqrt2 / 2)));
      return cdf +
             t * std::exp(C(-0.5) * t * t) * C(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    });
  }
};

// So et al. 2021, arXiv 2109.08668.
struct ReluSquared {
  template <class D, class V>
  static HWY_INLINE V value(D d, V x) {
    const V r = hn::Max(x, hn::Zero(d));
    return hn::Mul(r, r);
  }
  template <class D, class V>
  static HWY_INLINE V slope(D d, V x) {
    const V r = hn::Max(x, hn::Zero(d));
    return hn::Add(r, r);
  }
};

template <class F>
void with_activation(Activation kind, const F& f) {
  switch (kind) {
    case Activation::gelu_tanh:
      return f(GeluTanh{});
    case Activation::gelu_erf:
      return f(GeluErf{});
    case Activation::relu_squared:
      return f(ReluSquared{});
  }
}

void Forward(Activation kind, const Tensor& x, Tensor& y) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S* px = x.data<S>();
    S* py = y.data<S>();
    with_activation(kind, [&]<class Act>(Act) HWY_ATTR {
      parallel_ranges(x.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
        const hn::ScalableTag<C> d;
        each_vector(d, begin, end,
                    [&](At at) HWY_ATTR { store(Act::value(d, load(d, px, at)), d, py, at); });
      });
    });
  });
}

void Backward(Activation kind, const Tensor& x, const Tensor& dy, const Into& dx) {
  for_type(x.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S* px = x.data<S>();
    const S* pdy = dy.data<S>();
    S* pdx = dx.data<S>();
    with_activation(kind, [&]<class Act>(Act) HWY_ATTR {
      parallel_ranges(x.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
        const hn::ScalableTag<C> d;
        each_vector(d, begin, end, [&](At at) HWY_ATTR {
          const auto g = hn::Mul(load(d, pdy, at), Act::slope(d, load(d, px, at)));
          store_into(g, d, pdx, at, dx.add);
        });
      });
    });
  });
}

void SwigluForward(const Tensor& gate, const Tensor& up, Tensor& y) {
  for_type(gate.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S *pg = gate.data<S>(), *pu = up.data<S>();
    S* py = y.data<S>();
    parallel_ranges(gate.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        const auto g = load(d, pg, at);
        store(hn::Mul(hn::Mul(g, sigmoid(d, g)), load(d, pu, at)), d, py, at);
      });
    });
  });
}

void SwigluBackward(const Tensor& gate, const Tensor& up, const Tensor& dy, const Into& dgate,
                    const Into& dup) {
  for_type(gate.dtype(), [&]<class S, class C>() HWY_ATTR {
    const S *pg = gate.data<S>(), *pu = up.data<S>(), *pdy = dy.data<S>();
    S *pdg = dgate.data<S>(), *pdu = dup.data<S>();
    parallel_ranges(gate.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
      const hn::ScalableTag<C> d;
      const auto one = hn::Set(d, C(1));
      each_vector(d, begin, end, [&](At at) HWY_ATTR {
        const auto g = load(d, pg, at), u = load(d, pu, at), up_grad = load(d, pdy, at);
        const auto s = sigmoid(d, g);
        const auto slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));  // d silu(g) / dg
        store_into(hn::Mul(hn::Mul(up_grad, u), slope), d, pdg, at, dgate.add);
        store_into(hn::Mul(up_grad, hn::Mul(g, s)), d, pdu, at, dup.add);
      });
    });
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluBackward);

void CpuBackend::activation(Activation kind, const Tensor& x, Tensor& y) {
  HWY_DYNAMIC_DISPATCH(Forward)(kind, x, y);
}

void CpuBackend::activation_backward(Activation kind, const Tensor& x, const Tensor& dy,
                                     const Into& dx) {
  HWY_DYNAMIC_DISPATCH(Backward)(kind, x, dy, dx);
}

void CpuBackend::swiglu(const Tensor& gate, const Tensor& up, Tensor& y) {
  HWY_DYNAMIC_DISPATCH(SwigluForward)(gate, up, y);
}

void CpuBackend::swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy,
                                 const Into& dgate, const Into& dup) {
  HWY_DYNAMIC_DISPATCH(SwigluBackward)(gate, up, dy, dgate, dup);
}

}  // namespace headroom::kernels::cpu
#endif
