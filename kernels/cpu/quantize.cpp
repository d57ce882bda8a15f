// Rows of float32 as 8-bit integers and one scale each.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

constexpr float kMostI8 = 127;

/// Quantises one row and returns its scale.
HWY_INLINE float quantize_row(const float* x, int64_t width, int8_t* to) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int8_t, decltype(d)> narrow;
  auto most = hn::Zero(d);
  each_vector(d, 0, width, [&](At at) HWY_ATTR { most = hn::Max(most, hn::Abs(load(d, x, at))); });
  const float scale = hn::GetLane(hn::MaxOfLanes(d, most)) / kMostI8;
  // A division, not a product with the inverse: |x| / scale may not pass 127 by rounding.
  const auto by = hn::Set(d, scale > 0 ? scale : 1);
  each_vector(d, 0, width, [&](At at) HWY_ATTR {
    const auto rounded = hn::DemoteTo(narrow, hn::NearestInt(hn::Div(load(d, x, at), by)));
    if (at.n == 0) {
      hn::StoreU(rounded, narrow, to + at.i);
    } else {
      for (int64_t i = 0; i < at.n; ++i) {
        to[at.i + i] = hn::ExtractLane(rounded, static_cast<size_t>(i));
      }
    }
  });
  return scale;
}

void QuantizeRows(const Tensor& x, Weights& q) {
  const int64_t width = x.dim(1);
  const float* px = x.data<float>();
  auto* values = q.values.data<int8_t>();
  auto* scales = q.scales.data<float>();
  parallel_rows(x.dim(0), width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      scales[row] = quantize_row(px + row * width, width, values + row * width);
    }
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(QuantizeRows);

void CpuBackend::quantize_rows(const Tensor& x, Weights& q) {
  HWY_DYNAMIC_DISPATCH(QuantizeRows)(x, q);
}

}  // namespace headroom::kernels::cpu
#endif
