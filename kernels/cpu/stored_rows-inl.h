// Reading keys and values as a cache keeps them, a tile at a time: the one place that knows how
// they are stored. Included once per SIMD target, as simd-inl.h.

#if defined(HEADROOM_STORED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_STORED_ROWS_INL_H_
#undef HEADROOM_STORED_ROWS_INL_H_
#else
#define HEADROOM_STORED_ROWS_INL_H_
#endif

#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// to[i] = scale * q[i] for a vector coded in bytes; zeros up to whole vectors.
HWY_INLINE void decode(const int8_t* codes, const bf16* scales, int64_t bits, int64_t width,
                       float* to) {
  constexpr int64_t kGroup = KVCode::kGroup;
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < width; i += kGroup) {
    const int64_t count = std::min(kGroup, width - i);
    const int8_t* q = codes + i;
    int8_t numbers[kGroup];
    if (bits == 4) {
      for (int64_t j = 0; j < (count + 1) / 2; ++j) {
        const int8_t pair = codes[i / 2 + j];
        numbers[2 * j] = static_cast<int8_t>(static_cast<uint8_t>(pair) << 4U) >> 4;
        numbers[2 * j + 1] = pair >> 4;
      }
      q = numbers;
    }
    const auto scale = hn::Set(d, static_cast<float>(scales[i / kGroup]));
    each_vector(d, 0, count, [&](At at) HWY_ATTR {
      hn::Store(hn::Mul(scale, load(d, q, at)), d, to + i + at.i);
    });
  }
}

/// The keys or values of a call, in whatever type, for one KV head at a time.
class StoredRows {
 public:
  /// `width` numbers are read of each vector of values (slots, K, ...).
  StoredRows(const Tensor& values, const KVCode& code, int64_t width)
      : base_(static_cast<const char*>(values.raw())),
        scales_(code.scales.defined() ? code.scales.data<bf16>() : nullptr),
        groups_(code.scales.defined() ? code.scales.dim(2) : 0),
        bits_(code.bits),
        type_(values.dtype()),
        heads_(values.dim(1)),
        bytes_(values.dim(2) * static_cast<int64_t>(size_of(values.dtype()))),
        width_(width) {}

  /// Whether the numbers are simply elements of type S.
  template <class S>
  bool holds() const {
    return type_ == kDTypeOf<S>;
  }
  /// The vector of a slot and head, which holds<S>(); that of the next head follows stride<S>()
  /// elements later, that of the next slot after those of all heads.
  template <class S>
  const S* at(int64_t slot, int64_t head) const {
    return reinterpret_cast<const S*>(vector(slot, head));
  }
  template <class S>
  int64_t stride() const {
    return bytes_ / static_cast<int64_t>(sizeof(S));
  }

  /// to[i * ldt ...] = the vector of slot + i, for `rows` slots, zeros up to whole vectors.
  template <class Operand>
  HWY_INLINE void load(int64_t slot, int64_t head, int64_t rows, Operand* to, int64_t ldt) const {
    if constexpr (std::is_same_v<Operand, float>) {
      switch (type_) {
        case DType::f32:
          return load_elements<float>(slot, head, rows, to, ldt);
        case DType::bf16:
          return load_elements<bf16>(slot, head, rows, to, ldt);
        case DType::f16:
          return load_elements<f16>(slot, head, rows, to, ldt);
        default:
          return load_coded(slot, head, rows, to, ldt);
      }
    } else if constexpr (std::is_same_v<Operand, double>) {
      if (type_ == DType::f64) {
        return load_elements<double>(slot, head, rows, to, ldt);
      }
      widen(slot, head, rows, to, ldt);
    } else {
      load_elements<bf16>(slot, head, rows, to, ldt);
    }
  }

  /// Asks for the vectors that a load() will read later: processors don't foresee vectors far
  /// apart.
  HWY_INLINE void prefetch(int64_t slot, int64_t head, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) {
      const char* from = vector(slot + i, head);
      for (int64_t j = 0; j < bytes_; j += 64) {
        hwy::Prefetch(from + j);
      }
    }
  }

 private:
  const char* vector(int64_t slot, int64_t head) const {
    return base_ + (slot * heads_ + head) * bytes_;
  }

  template <class S, class Operand>
  HWY_INLINE void load_elements(int64_t slot, int64_t head, int64_t rows, Operand* to,
                                int64_t ldt) const {
    load_tile(at<S>(slot, head), heads_ * stride<S>(), rows, width_, to, ldt);
  }

  HWY_INLINE void load_coded(int64_t slot, int64_t head, int64_t rows, float* to,
                             int64_t ldt) const {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = (slot + i) * heads_ + head;
      decode(reinterpret_cast<const int8_t*>(base_ + at * bytes_), scales_ + at * groups_, bits_,
             width_, to + i * ldt);
    }
  }

  /// By way of float32, which every type but f64 fits.
  HWY_INLINE void widen(int64_t slot, int64_t head, int64_t rows, double* to, int64_t ldt) const {
    const hn::ScalableTag<double> d;
    const int64_t columns = round_up(width_, static_cast<int64_t>(hn::Lanes(d)));
    auto* narrow = scratch<float, ScratchUse::item>(padded<float>(width_));
    for (int64_t i = 0; i < rows; ++i) {
      load(slot + i, head, 1, narrow, 0);
      for (int64_t j = 0; j < columns; ++j) {
        to[i * ldt + j] = j < width_ ? static_cast<double>(narrow[j]) : 0.0;
      }
    }
  }

  const char* base_;
  const bf16* scales_;
  int64_t groups_, bits_;
  DType type_;
  int64_t heads_;
  int64_t bytes_;  // of a vector
  int64_t width_;
};

inline StoredRows keys_of(const AttentionInputs& in) {
  return {in.kv.k, in.kv.k_code, in.q.dim(3)};
}
inline StoredRows values_of(const AttentionInputs& in) {
  const bool own = in.kv.v.defined();
  return {own ? in.kv.v : in.kv.k, own ? in.kv.v_code : in.kv.k_code, in.kv.width_of_values()};
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
