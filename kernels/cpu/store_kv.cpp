// Writing keys and values into a cache: rounding, coding, and the rotation that spreads outliers
// before it. A step writes few vectors, so plain loops do.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/types.h"

namespace headroom::kernels::cpu {

namespace {

/// The smallest bf16 that is at least x >= 0; NaN for what is no finite number.
bf16 rounded_up(float x) {
  if (!std::isfinite(x)) {
    return bf16(std::numeric_limits<float>::quiet_NaN());
  }
  bf16 result(x);
  if (static_cast<float>(result) < x) {
    ++result.bits;
  }
  return result;
}

/// Codes one group of up to 32 numbers in units of `scale`, which it returns.
template <class C>
bf16 code_group(const C* x, int64_t count, int64_t most, int8_t* q) {
  C largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    // NaN must not get lost in a maximum.
    largest = std::isnan(x[i]) ? x[i] : std::max(largest, std::abs(x[i]));
  }
  const bf16 scale = rounded_up(static_cast<float>(largest) / static_cast<float>(most));
  const auto unit = static_cast<C>(static_cast<float>(scale));
  for (int64_t i = 0; i < count; ++i) {
    // A scale of NaN makes every number NaN again, whatever its code.
    const C number = unit > 0 ? std::nearbyint(x[i] / unit) : C(0);
    q[i] = static_cast<int8_t>(std::clamp(number, static_cast<C>(-most), static_cast<C>(most)));
  }
  return scale;
}

template <class C>
void code_vector(const C* x, int64_t width, int64_t bits, int8_t* to, bf16* scales) {
  constexpr int64_t kGroup = KVCode::kGroup;
  for (int64_t i = 0; i < width; i += kGroup) {
    const int64_t count = std::min(kGroup, width - i);
    if (bits == 8) {
      scales[i / kGroup] = code_group(x + i, count, 127, to + i);
      continue;
    }
    int8_t q[kGroup + 1] = {};
    scales[i / kGroup] = code_group(x + i, count, 7, q);
    for (int64_t j = 0; j < count; j += 2) {
      const auto low = static_cast<uint8_t>(q[j]), high = static_cast<uint8_t>(q[j + 1]);
      to[(i + j) / 2] = static_cast<int8_t>((low & 0xfU) | (high << 4U));
    }
  }
}

/// A number of type S in the compute type.
template <class C, class S>
C widened(S x) {
  if constexpr (std::is_same_v<S, bf16>) {
    return static_cast<C>(static_cast<float>(x));
  } else {
    return static_cast<C>(x);
  }
}

template <class T, class C>
T rounded(C x) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return T(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

/// Calls f.operator()<T>() for the element type of a cache that is not coded.
template <class F>
void for_stored_type(DType dtype, const F& f) {
  if (dtype == DType::f16) {
    return f.template operator()<f16>();
  }
  for_type(dtype, [&]<class T, class>() { f.template operator()<T>(); });
}

/// Calls f(row, slot, count) for runs of rows in [begin, end) whose slots follow one another.
template <class F>
void for_runs(const int32_t* slots, int64_t begin, int64_t end, const F& f) {
  for (int64_t row = begin, next = row; row < end; row = next) {
    const int64_t slot = slots[row];
    for (next = row + 1; slot >= 0 && next < end && slots[next] == slot + (next - row);) {
      ++next;
    }
    if (slot >= 0) {
      f(row, slot, next - row);
    }
  }
}

/// The largest power of two that divides n > 0.
int64_t power_of_two_in(int64_t n) { return n & -n; }

/// x times the Hadamard matrix of size n, a power of two (the fast transform).
template <class C>
void transform(C* x, int64_t n) {
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t i = 0; i < n; i += 2 * half) {
      for (int64_t j = i; j < i + half; ++j) {
        const C a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
}

}  // namespace

void CpuBackend::store_kv(const Tensor& x, const Tensor& slots, Tensor& to, const KVCode& code) {
  const int64_t rows = x.dim(0), heads = x.dim(1), width = x.dim(2), row_size = heads * width;
  const auto* places = slots.data<int32_t>();
  const auto in_runs = [&](const auto& store) {
    parallel_rows(rows, row_size,
                  [&](int64_t begin, int64_t end) { for_runs(places, begin, end, store); });
  };
  if (x.dtype() == to.dtype()) {
    const size_t bytes = static_cast<size_t>(row_size) * size_of(x.dtype());
    const auto* from = static_cast<const std::byte*>(x.raw());
    auto* target = static_cast<std::byte*>(to.raw());
    return in_runs([&](int64_t row, int64_t slot, int64_t count) {
      std::memcpy(target + static_cast<size_t>(slot) * bytes,
                  from + static_cast<size_t>(row) * bytes, static_cast<size_t>(count) * bytes);
    });
  }
  for_type(x.dtype(), [&]<class S, class C>() {
    const S* px = x.data<S>();
    if (!code.scales.defined()) {
      for_stored_type(to.dtype(), [&]<class T>() {
        T* target = to.data<T>();
        in_runs([&](int64_t row, int64_t slot, int64_t count) {
          std::transform(px + row * row_size, px + (row + count) * row_size,
                         target + slot * row_size,
                         [](S number) { return rounded<T>(widened<C>(number)); });
        });
      });
      return;
    }
    const int64_t bytes = to.dim(2), groups = code.scales.dim(2);
    auto* target = to.data<int8_t>();
    auto* scales = Tensor(code.scales).data<bf16>();
    in_runs([&](int64_t row, int64_t slot, int64_t count) {
      std::vector<C> wide(static_cast<size_t>(width));
      for (int64_t i = 0; i < count * heads; ++i) {
        const S* vector = px + (row * heads + i) * width;
        const int64_t at = slot * heads + i;
        std::transform(vector, vector + width, wide.begin(), widened<C, S>);
        code_vector(wide.data(), width, code.bits, target + at * bytes, scales + at * groups);
      }
    });
  });
}

void CpuBackend::hadamard(const Tensor& x, Tensor& y) {
  const int64_t width = x.dim(-1), rows = x.numel() / width, size = power_of_two_in(width);
  for_type(x.dtype(), [&]<class S, class C>() {
    const S* from = x.data<S>();
    S* to = y.data<S>();
    const C factor = 1 / std::sqrt(static_cast<C>(size));
    parallel_rows(rows, width, [&](int64_t begin, int64_t end) {
      std::vector<C> row(static_cast<size_t>(width));
      for (int64_t r = begin; r < end; ++r) {
        std::transform(from + r * width, from + (r + 1) * width, row.begin(), widened<C, S>);
        for (int64_t i = 0; i < width; i += size) {
          transform(row.data() + i, size);
        }
        std::transform(row.begin(), row.end(), to + r * width,
                       [&](C value) { return rounded<S>(factor * value); });
      }
    });
  });
}

}  // namespace headroom::kernels::cpu
