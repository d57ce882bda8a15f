// Choosing a token. The largest logit: a block summarises a stretch of them, the host joins the few
// summaries in order. Narrowing and drawing, one block: what stays of the tokens in order of
// likelihood, and the token at which a share of the weights is passed, are each found by bisection
// with a sum over all of them, rather than by sorting.
#include "kernels/cuda/cuda_backend.h"

#include <cmath>
#include <limits>

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

constexpr int64_t kStretch = 4096;

/// Of a stretch: its largest element, that one's index, and the sum of exp(element - largest).
/// The index is -1 where some element is NaN or +inf.
struct Summary {
  double most, index, sum;
};

template <class C>
__global__ void summarize(const C* x, Summary* summaries, int64_t n, C infinity) {
  constexpr int kWarps = kThreads / kWarp;
  const auto scratch = shared_memory<C>(0, kWarps);
  const auto whole = shared_memory<int>(kWarps * static_cast<int>(sizeof(C)), kWarps);
  const int64_t begin = blockIdx.x * kStretch;
  const int64_t end = begin + kStretch < n ? begin + kStretch : n;
  C most = -infinity;
  int bad = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    bad = x[i] < infinity ? bad : 1;
    most = Maximum()(most, x[i]);
  }
  bad = join_block(bad, whole, Maximum());
  most = join_block(most, scratch, Maximum());
  // The lowest index is the largest count of elements from it to the end.
  int from_end = 0;
  C sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    from_end = x[i] == most && from_end == 0 ? static_cast<int>(end - i) : from_end;
    sum += most > -infinity ? exponential(x[i] - most) : C(0);
  }
  from_end = join_block(from_end, whole, Maximum());
  sum = join_block(sum, scratch, Sum());
  if (threadIdx.x == 0) {
    summaries[blockIdx.x] = {static_cast<double>(most),
                             bad != 0 ? -1.0 : static_cast<double>(end - from_end),
                             static_cast<double>(sum)};
  }
}

Largest join(const Summary* summaries, int64_t count) {
  const Summary* best = summaries;
  for (const Summary* s = summaries; s < summaries + count; ++s) {
    if (s->index < 0) {
      return {};
    }
    best = s->most > best->most ? s : best;
  }
  if (!std::isfinite(best->most)) {
    return {};
  }
  double sum = 0;
  for (const Summary* s = summaries; s < summaries + count; ++s) {
    sum += s->sum * std::exp(s->most - best->most);
  }
  return {static_cast<int64_t>(best->index), best->most, best->most + std::log(sum)};
}

template <class C>
__global__ void weigh(const C* x, C shift, C divisor, C* y, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_step()) {
    y[i] = exponential((x[i] - shift) / divisor);
  }
}

/// Threads of the one block that narrows and draws, and its shared memory.
constexpr int kManyThreads = 1024;
constexpr size_t kManySums = kManyThreads / kWarp * sizeof(double);

/// A number's place in the order of its type: a larger number has a larger one, equal ones the
/// same.
__device__ inline uint64_t place_of(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0F);  // -0 becomes 0
  return bits >> 31U != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline uint64_t place_of(double x) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(x + 0.0));
  return bits >> 63U != 0 ? ~bits : bits | 0x8000000000000000U;
}

/// The last of 0..most for which `holds` is true; it is for 0 and, once it isn't, for none after.
template <class Holds>
__device__ uint64_t last_that_holds(uint64_t most, const Holds& holds) {
  uint64_t low = 0, high = most;
  while (low < high) {
    const uint64_t middle = high - (high - low) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// The sum of part(i) over the items, in every thread. Its order depends only on their number:
/// parts that are 0 instead never make it larger.
template <class Part>
__device__ double total(int64_t n, const Part& part) {
  const auto scratch = shared_memory<double>(0, kManyThreads / kWarp);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kManyThreads) {
    sum += part(i);
  }
  return join_block(sum, scratch, Sum());
}

/// Sets to 0 the weights of all but the likeliest tokens: the fewest whose parts reach `wanted`.
template <class C, class Part>
__device__ void keep_until(double wanted, const C* x, C* w, int64_t n, const Part& part) {
  const uint64_t least =
      last_that_holds(sizeof(C) == 4 ? 0xffffffffU : ~uint64_t{0}, [&](uint64_t p) {
        return total(n, [&](int64_t i) { return place_of(x[i]) >= p ? part(i) : 0.0; }) >= wanted;
      });
  // Of those at the edge, which are equal, the lowest ids.
  const auto stays = [&](int64_t i, uint64_t id) {
    const uint64_t place = place_of(x[i]);
    return place > least || (place == least && static_cast<uint64_t>(i) < id);
  };
  const uint64_t last = last_that_holds(static_cast<uint64_t>(n - 1), [&](uint64_t id) {
    return total(n, [&](int64_t i) { return stays(i, id) ? part(i) : 0.0; }) < wanted;
  });
  for (int64_t i = threadIdx.x; i < n; i += kManyThreads) {
    w[i] = stays(i, last + 1) ? w[i] : C(0);
  }
}

template <class C>
__global__ void __launch_bounds__(kManyThreads)
    narrow_choice(const C* x, int64_t n, Narrowing by, C* w) {
  const auto weight = [w](int64_t i) { return static_cast<double>(w[i]); };
  if (by.top_k > 0 && by.top_k < n) {
    keep_until(static_cast<double>(by.top_k), x, w, n, [](int64_t) { return 1.0; });
  }
  if (by.top_p < 1) {
    constexpr double kLeast = 1e-300;  // at least one token stays
    keep_until(fmax(by.top_p * total(n, weight), kLeast), x, w, n, weight);
  }
  for (int64_t i = threadIdx.x; i < n; i += kManyThreads) {
    w[i] = weight(i) < by.min_p ? C(0) : w[i];
  }
}

template <class C>
__global__ void __launch_bounds__(kManyThreads)
    draw_one(const C* w, int64_t n, double share, int32_t* token) {
  const auto weight = [w](int64_t i) { return static_cast<double>(w[i]); };
  const double all = total(n, weight), passed = share * all;
  const uint64_t drawn = last_that_holds(static_cast<uint64_t>(n - 1), [&](uint64_t id) {
    return total(n, [&](int64_t i) { return static_cast<uint64_t>(i) < id ? weight(i) : 0.0; }) <=
           passed;
  });
  if (threadIdx.x == 0) {
    *token = all > passed ? static_cast<int32_t>(drawn) : -1;
  }
}

}  // namespace

Largest CudaBackend::largest(const Tensor& x) {
  const int64_t n = x.numel(), stretches = (n + kStretch - 1) / kStretch;
  if (n == 0) {
    return {};
  }
  Tensor summaries = Tensor::empty({stretches, 3}, DType::f64, x.device());
  for_type(x.dtype(), [&]<class, class C>() {
    launch(summarize<C>, dim3(static_cast<unsigned>(stretches)), kThreads,
           kThreads / kWarp * (sizeof(C) + sizeof(int)), x.data<C>(),
           reinterpret_cast<Summary*>(summaries.data<double>()), n,
           std::numeric_limits<C>::infinity());
  });
  const Tensor on_host = summaries.to(kCpu);
  return join(reinterpret_cast<const Summary*>(on_host.data<double>()), stretches);
}

void CudaBackend::exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) {
  for_type(x.dtype(), [&]<class, class C>() {
    // Anything smaller than the smallest normal number sends all but the shift itself to 0 too.
    const C by = static_cast<C>(std::max<double>(divisor, std::numeric_limits<C>::min()));
    launch(weigh<C>, blocks_for(x.numel()), kThreads, 0, x.data<C>(), static_cast<C>(shift), by,
           y.data<C>(), x.numel());
  });
}

void CudaBackend::keep_likeliest(const Tensor& x, const Narrowing& by, Tensor& w) {
  for_type(x.dtype(), [&]<class, class C>() {
    launch(narrow_choice<C>, dim3(1), kManyThreads, kManySums, x.data<C>(), x.numel(), by,
           w.data<C>());
  });
}

int32_t CudaBackend::draw(const Tensor& w, double share) {
  Tensor token = Tensor::empty({1}, DType::i32, w.device());
  for_type(w.dtype(), [&]<class, class C>() {
    launch(draw_one<C>, dim3(1), kManyThreads, kManySums, w.data<C>(), w.numel(), share,
           token.data<int32_t>());
  });
  return token.to(kCpu).data<int32_t>()[0];
}

}  // namespace headroom::kernels::cuda
