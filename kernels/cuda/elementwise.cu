// Loops over elements: conversions, sums, the soft cap, dropout, and the activations of the MLP.
// They wait for memory alone, so a thread loads 16 bytes of each input at a time, and neighbours
// lie side by side.
#include "kernels/cuda/cuda_backend.h"

#include <cmath>

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

template <class S, int kCount>
struct Inputs {
  const S* x[kCount];
};
template <class S, int kCount>
struct Outputs {
  S* y[kCount];
  bool add[kCount];
};

/// Elements [first, first + kPack) as far as there are any. `whole`: all, and aligned.
template <class S>
__device__ Pack<S> load_pack(const S* x, int64_t first, int64_t n, bool whole) {
  if (whole) {
    return *reinterpret_cast<const Pack<S>*>(x + first);
  }
  Pack<S> pack{};
  for (int j = 0; j < kPack<S> && first + j < n; ++j) {
    pack.x[j] = x[first + j];
  }
  return pack;
}
template <class S>
__device__ void store_pack(const Pack<S>& pack, S* y, int64_t first, int64_t n, bool whole) {
  if (whole) {
    *reinterpret_cast<Pack<S>*>(y + first) = pack;
    return;
  }
  for (int j = 0; j < kPack<S> && first + j < n; ++j) {
    y[first + j] = pack.x[j];
  }
}

/// For every element: f(values of the inputs, values for the outputs). All inputs of a pack are
/// read before an output is written, so an output may be an input.
template <class S, class C, class F, int kIn, int kOut>
__global__ void map_elements(F f, Inputs<S, kIn> in, Outputs<S, kOut> out, int64_t n,
                             bool aligned) {
  for (int64_t first = first_item() * kPack<S>; first < n; first += item_step() * kPack<S>) {
    const bool whole = aligned && first + kPack<S> <= n;
    Pack<S> from[kIn], to[kOut];
    for (int i = 0; i < kIn; ++i) {
      from[i] = load_pack(in.x[i], first, n, whole);
    }
    for (int o = 0; o < kOut; ++o) {
      to[o] = out.add[o] ? load_pack(out.y[o], first, n, whole) : Pack<S>{};
    }
    for (int j = 0; j < kPack<S>; ++j) {
      C values[kIn], results[kOut];
      for (int i = 0; i < kIn; ++i) {
        values[i] = widen<C>(from[i].x[j]);
      }
      f(values, results);
      for (int o = 0; o < kOut; ++o) {
        put(results[o], &to[o].x[j], out.add[o]);
      }
    }
    for (int o = 0; o < kOut; ++o) {
      store_pack(to[o], out.y[o], first, n, whole);
    }
  }
}

template <class S, class C, class F, int kIn, int kOut>
void map(const F& f, const Inputs<S, kIn>& in, const Outputs<S, kOut>& out, int64_t n) {
  const bool aligned = std::all_of(std::begin(in.x), std::end(in.x), is_aligned) &&
                       std::all_of(std::begin(out.y), std::end(out.y), is_aligned);
  launch(map_elements<S, C, F, kIn, kOut>, blocks_for((n + kPack<S> - 1) / kPack<S>), kThreads, 0,
         f, in, out, n, aligned);
}

template <class S>
Outputs<S, 1> into(const Into& y) {
  return {{y.data<S>()}, {y.add}};
}

/// 1 / (1 + exp(-x)); an exponential that overflows makes it 0.
template <class C>
__device__ C sigmoid(C x) {
  return C(1) / (C(1) + exponential(-x));
}

template <class C>
struct Scale {
  C a;
  __device__ void operator()(const C* x, C* y) const { y[0] = a * x[0]; }
};
template <class C>
struct Add {
  __device__ void operator()(const C* x, C* y) const { y[0] = x[0] + x[1]; }
};
template <class C>
struct Softcap {
  C cap, inverse;
  __device__ void operator()(const C* x, C* y) const {
    y[0] = cap * hyperbolic_tangent(x[0] * inverse);
  }
};
template <class C>
struct SoftcapBackward {
  C inverse;
  __device__ void operator()(const C* x, C* dx) const {
    const C t = x[0] * inverse;
    dx[0] = x[1] * (C(1) - t * t);
  }
};

// f(x) and f'(x).

// Hendrycks and Gimpel, arXiv 1606.08415, with tanh: u = sqrt(2/pi) (x + 0.044715 x^3), gelu = x (1
// + tanh u) / 2. With s = sigmoid(2u) that is x s.
struct GeluTanh {
  static constexpr double kTwice = 2 * 0.797884560802865355879892, kCube = 0.044715;
  template <class C>
  static __device__ C gate(C x) {
    return sigmoid(C(kTwice) * x * (C(1) + C(kCube) * x * x));
  }
  template <class C>
  static __device__ C value(C x) {
    return x * gate(x);
  }
  template <class C>
  static __device__ C slope(C x) {
    const C s = gate(x), rest = s * (C(1) - s);
    // Where the gate is 0 or 1 to the last bit, x^3 may be infinite.
    return rest == C(0) ? s : s + x * rest * C(kTwice) * (C(1) + C(3 * kCube) * x * x);
  }
};

// The exact form: x Phi(x).
struct GeluErf {
  static constexpr double kHalfRoot = 0.707106781186547524400844;  // 1 / sqrt(2)
  static constexpr double kDensity = 0.398942280401432677939946;   // 1 / sqrt(2 pi)
  template <class C>
  static __device__ C cdf(C x) {
    return C(0.5) * (C(1) + error_function(x * C(kHalfRoot)));
  }
  template <class C>
  static __device__ C value(C x) {
    return x * cdf(x);
  }
  template <class C>
  static __device__ C slope(C x) {
    return cdf(x) + x * exponential(C(-0.5) * x * x) * C(kDensity);
  }
};

// So et al. 2021, arXiv 2109.08668.
struct ReluSquared {
  template <class C>
  static __device__ C value(C x) {
    return x > C(0) ? x * x : C(0);
  }
  template <class C>
  static __device__ C slope(C x) {
    return x > C(0) ? x + x : C(0);
  }
};

template <class C, class Act>
struct Forward {
  __device__ void operator()(const C* x, C* y) const { y[0] = Act::value(x[0]); }
};
template <class C, class Act>
struct Backward {
  __device__ void operator()(const C* x, C* dx) const { dx[0] = x[1] * Act::slope(x[0]); }
};

template <class F>
void with_activation(Activation kind, const F& f) {
  switch (kind) {
    case Activation::gelu_tanh:
      return f.template operator()<GeluTanh>();
    case Activation::gelu_erf:
      return f.template operator()<GeluErf>();
    case Activation::relu_squared:
      return f.template operator()<ReluSquared>();
  }
}

// silu(gate) * up: Shazeer 2020, arXiv 2002.05202.
template <class C>
struct Swiglu {
  __device__ void operator()(const C* x, C* y) const { y[0] = x[0] * sigmoid(x[0]) * x[1]; }
};
template <class C>
struct SwigluBackward {
  __device__ void operator()(const C* x, C* d) const {
    const C g = x[0], s = sigmoid(g);
    d[0] = x[2] * x[1] * (s * (C(1) + g * (C(1) - s)));
    d[1] = x[2] * (g * s);
  }
};

template <class S>
__global__ void fill_elements(S* x, S value, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_step()) {
    x[i] = value;
  }
}

/// A thread to four neighbours of the stream, which one Philox block decides.
template <class S, class C>
__global__ void drop_elements(const S* x, S* y, bool add, RandomStream stream, uint64_t threshold,
                              C keep, int64_t first, int64_t n) {
  const int64_t begin = first / 4, end = (first + n + 3) / 4;
  for (int64_t block = begin + first_item(); block < end; block += item_step()) {
    const auto numbers = stream.block(static_cast<uint64_t>(block));
    for (int j = 0; j < 4; ++j) {
      const int64_t i = block * 4 + j - first;
      if (i >= 0 && i < n) {
        const bool kept = numbers[static_cast<size_t>(j)] >= threshold;
        put(kept ? widen<C>(x[i]) * keep : C(0), y + i, add);
      }
    }
  }
}

/// f64 against f32 directly; the 16-bit types by way of f32.
template <class From, class To>
__global__ void convert_elements(const From* x, To* y, int64_t n) {
  using C =
      std::conditional_t<std::is_same_v<To, double> && std::is_same_v<From, double>, double, float>;
  for (int64_t i = first_item(); i < n; i += item_step()) {
    y[i] = narrow<To>(widen<C>(x[i]));
  }
}

template <class F>
void for_floating(DType type, const F& f) {
  if (type == DType::f16) {
    return f.template operator()<f16>();
  }
  for_type(type, [&]<class S, class>() { f.template operator()<S>(); });
}

}  // namespace

void CudaBackend::fill(Tensor& x, double value) {
  for_type(x.dtype(), [&]<class S, class C>() {
    launch(fill_elements<S>, blocks_for(x.numel()), kThreads, 0, x.data<S>(),
           S(static_cast<C>(value)), x.numel());
  });
}

void CudaBackend::cast(const Tensor& x, Tensor& y) {
  if (x.dtype() == y.dtype()) {
    return y.copy_from(x);
  }
  for_floating(x.dtype(), [&]<class From>() {
    for_floating(y.dtype(), [&]<class To>() {
      launch(convert_elements<From, To>, blocks_for(x.numel()), kThreads, 0, x.data<From>(),
             y.data<To>(), x.numel());
    });
  });
}

void CudaBackend::scale(const Tensor& x, double a, const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    map<S, C>(Scale<C>{static_cast<C>(a)}, Inputs<S, 1>{{x.data<S>()}}, into<S>(y), x.numel());
  });
}

void CudaBackend::add(const Tensor& a, const Tensor& b, Tensor& y) {
  for_type(a.dtype(), [&]<class S, class C>() {
    map<S, C>(Add<C>{}, Inputs<S, 2>{{a.data<S>(), b.data<S>()}}, into<S>({y, false}), a.numel());
  });
}

// The mask is made of the stream's numbers alone, so forward and backward agree without storing it.
void CudaBackend::dropout(const Tensor& x, double p, const RandomStream& stream, int64_t first,
                          const Into& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    launch(drop_elements<S, C>, blocks_for(x.numel() / 4 + 2), kThreads, 0, x.data<S>(),
           y.data<S>(), y.add, stream, static_cast<uint64_t>(p * 4294967296.0),
           static_cast<C>(1 / (1 - p)), first, x.numel());
  });
}

void CudaBackend::softcap(const Tensor& x, double cap, Tensor& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    map<S, C>(Softcap<C>{static_cast<C>(cap), static_cast<C>(1 / cap)}, Inputs<S, 1>{{x.data<S>()}},
              into<S>({y, false}), x.numel());
  });
}

void CudaBackend::softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) {
  for_type(y.dtype(), [&]<class S, class C>() {
    map<S, C>(SoftcapBackward<C>{static_cast<C>(1 / cap)},
              Inputs<S, 2>{{y.data<S>(), dy.data<S>()}}, into<S>(dx), y.numel());
  });
}

void CudaBackend::activation(Activation kind, const Tensor& x, Tensor& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    with_activation(kind, [&]<class Act>() {
      map<S, C>(Forward<C, Act>{}, Inputs<S, 1>{{x.data<S>()}}, into<S>({y, false}), x.numel());
    });
  });
}

void CudaBackend::activation_backward(Activation kind, const Tensor& x, const Tensor& dy,
                                      const Into& dx) {
  for_type(x.dtype(), [&]<class S, class C>() {
    with_activation(kind, [&]<class Act>() {
      map<S, C>(Backward<C, Act>{}, Inputs<S, 2>{{x.data<S>(), dy.data<S>()}}, into<S>(dx),
                x.numel());
    });
  });
}

void CudaBackend::swiglu(const Tensor& gate, const Tensor& up, Tensor& y) {
  for_type(gate.dtype(), [&]<class S, class C>() {
    map<S, C>(Swiglu<C>{}, Inputs<S, 2>{{gate.data<S>(), up.data<S>()}}, into<S>({y, false}),
              gate.numel());
  });
}

void CudaBackend::swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy,
                                  const Into& dgate, const Into& dup) {
  for_type(gate.dtype(), [&]<class S, class C>() {
    map<S, C>(SwigluBackward<C>{}, Inputs<S, 3>{{gate.data<S>(), up.data<S>(), dy.data<S>()}},
              Outputs<S, 2>{{dgate.data<S>(), dup.data<S>()}, {dgate.add, dup.add}}, gate.numel());
  });
}

}  // namespace headroom::kernels::cuda
