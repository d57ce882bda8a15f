// Loops that do nothing but multiply and add, or nothing but read.
#include "kernels/peak.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/targets.h"
#include "kernels/threads.h"
#include "tensor/tensor.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/peak.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sums in flight: a latency of 4 cycles on two units needs 8.
constexpr int kSums = 12;

/// Runs `steps` steps and returns their FLOP. The sum goes to `sink`, or it would not be computed.
HWY_NOINLINE double MultiplyAdd(int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sum[kSums];
  for (int i = 0; i < kSums; ++i) {
    sum[i] = hn::Set(d, static_cast<float>(i));
  }
  const auto a = hn::Set(d, 0.999F), b = hn::Set(d, 0.001F);
  for (int64_t step = 0; step < steps; ++step) {
    for (int i = 0; i < kSums; ++i) {
      sum[i] = hn::MulAdd(sum[i], a, b);
    }
  }
  for (int i = 1; i < kSums; ++i) {
    sum[0] = hn::Add(sum[0], sum[i]);
  }
  *sink = hn::GetLane(sum[0]);
  return 2.0 * kSums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

/// Sum of n numbers, a multiple of kSums vectors.
HWY_NOINLINE int32_t ReadAll(const int32_t* x, int64_t n) {
  const hn::ScalableTag<int32_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kSums];
  for (auto& s : sum) {
    s = hn::Zero(d);
  }
  for (int64_t i = 0; i + kSums * lanes <= n; i += kSums * lanes) {
    for (int c = 0; c < kSums; ++c) {
      sum[c] = hn::Add(sum[c], hn::LoadU(d, x + i + c * lanes));
    }
  }
  for (int c = 1; c < kSums; ++c) {
    sum[0] = hn::Add(sum[0], sum[c]);
  }
  return hn::GetLane(sum[0]);
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {
namespace cpu {
namespace {

HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(ReadAll);

#if defined(__x86_64__)
/// MultiplyAdd with the bf16 dot product: per lane two products and two additions. Highway of
/// Debian 12 doesn't have it.
__attribute__((target("avx512bf16,avx512f"), noinline)) double multiply_add_bf16(int64_t steps,
                                                                                 float* sink) {
  constexpr int kSums = 12, kLanes = 16;
  __m512 sum[kSums];
  for (int i = 0; i < kSums; ++i) {
    sum[i] = _mm512_set1_ps(static_cast<float>(i));
  }
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5F), _mm512_set1_ps(0.5F));
  for (int64_t step = 0; step < steps; ++step) {
    for (auto& s : sum) {
      s = _mm512_dpbf16_ps(s, a, a);
    }
  }
  for (int i = 1; i < kSums; ++i) {
    sum[0] = _mm512_add_ps(sum[0], sum[i]);
  }
  *sink = _mm512_cvtss_f32(sum[0]);
  return 4.0 * kSums * kLanes * static_cast<double>(steps);
}
#endif

#if defined(__x86_64__) && defined(__linux__)
/// Linux hands out the tile registers on request: see Documentation/arch/x86/xstate.rst.
bool may_use_tiles() {
  constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;
  return has_amx_bf16() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// The operand of LDTILECFG: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Products of 16 x 32 by 32 x 16 into six tiles of sums: a latency of 52 cycles needs four.
__attribute__((target("amx-tile,amx-bf16"), noinline)) double multiply_tiles(int64_t steps) {
  constexpr int kTileSums = 6;
  static const TileConfig config;  // GCC 12 drops the stores of one on the stack
  _tile_loadconfig(&config);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t step = 0; step < steps; ++step) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_release();
  return 2.0 * 16 * 32 * 16 * kTileSums * static_cast<double>(steps);
}
#endif

double multiply_add(DType operands, int64_t steps, float* sink) {
#if defined(__x86_64__)
  if (operands == DType::bf16 && has_native_bf16()) {
    return multiply_add_bf16(steps, sink);
  }
#endif
  return HWY_DYNAMIC_DISPATCH(MultiplyAdd)(steps, sink);
}

/// Units per second, in 10^9, of f(thread) called once on every thread; it returns units.
template <class F>
double rate_of(const F& f) {
  const auto threads = static_cast<size_t>(omp_get_max_threads());
  std::vector<double> units(threads, 0.0);
  const auto begin = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    const int thread = omp_get_thread_num();
    units[static_cast<size_t>(thread)] = f(thread);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  double sum = 0;
  for (const double each : units) {
    sum += each;
  }
  return sum / seconds.count() / 1e9;
}

}  // namespace
}  // namespace cpu

double fma_peak_gflops(DType operands) {
  check(operands == DType::f32 || operands == DType::bf16,
        "[peak] operands are f32 or bf16: got {}", name_of(operands));
  constexpr int64_t kSteps = 4'000'000;
  return cpu::rate_of([operands](int) {
    volatile float kept = 0;
    float sink = 0;
    const double flop = cpu::multiply_add(operands, kSteps, &sink);
    kept = sink;
    static_cast<void>(kept);
    return flop;
  });
}

double amx_peak_gflops([[maybe_unused]] DType operands) {
#if defined(__x86_64__) && defined(__linux__)
  static const bool may_use = cpu::may_use_tiles();
  constexpr int64_t kSteps = 500'000;
  if (operands == DType::bf16 && may_use) {
    return cpu::rate_of([](int) { return cpu::multiply_tiles(kSteps); });
  }
#endif
  return 0;
}

double read_bandwidth_gb_s() {
  using namespace cpu;
  constexpr int64_t kNumbers = int64_t{96} << 20;  // 403 MB, beyond any cache
  Tensor memory = Tensor::empty({kNumbers}, DType::i32);
  auto* numbers = memory.data<int32_t>();
  const int64_t threads = omp_get_max_threads(), part = kNumbers / threads;
  const auto begin_of = [&](int64_t thread) { return numbers + thread * part; };
  rate_of([&](int thread) {  // the pages come into being
    std::fill_n(begin_of(thread), part, thread);
    return 0.0;
  });
  return rate_of([&](int thread) {
    volatile int32_t kept = HWY_DYNAMIC_DISPATCH(ReadAll)(begin_of(thread), part);
    static_cast<void>(kept);
    return static_cast<double>(part) * sizeof(int32_t);
  });
}

}  // namespace headroom::kernels
#endif
