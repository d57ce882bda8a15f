// Vectors as they lie in the device's memory: of any type, or coded in bytes. The one place that
// knows how a cache keeps keys and values; see KVCode in kernels/backend.h.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/device_math.h"

namespace headroom::kernels::cuda {

enum class Storage : uint8_t { f64, f32, bf16, f16, i8, i4 };

/// Numbers of a slice: what one lane takes of a vector, all of one scale.
inline constexpr int kSlice = 8;
static_assert(KVCode::kGroup % kSlice == 0);

/// Vectors of `width` numbers, `stride` elements (bytes, where coded) apart.
struct StoredRows {
  const void* values = nullptr;
  const bf16* scales = nullptr;  // `groups` to a vector, where coded
  int64_t stride = 0;
  int groups = 0, width = 0;
  Storage storage = Storage::f32;
  /// Whether every slice is whole and begins at a multiple of its size.
  bool slices_are_aligned = false;
};

inline Storage storage_of(DType type, int64_t bits) {
  switch (type) {
    case DType::f64:
      return Storage::f64;
    case DType::f32:
      return Storage::f32;
    case DType::bf16:
      return Storage::bf16;
    case DType::f16:
      return Storage::f16;
    case DType::i8:
      return bits == 4 ? Storage::i4 : Storage::i8;
    default:
      throw Error(fmt::format("[kernels] keys and values can't be {}", name_of(type)));
  }
}

/// The first `width` numbers of the vectors that are the last axis of `x`.
inline StoredRows stored_rows(const Tensor& x, const KVCode& code, int64_t width) {
  StoredRows rows;
  rows.values = x.raw();
  rows.stride = x.dim(-1);
  rows.width = static_cast<int>(width);
  rows.storage = storage_of(x.dtype(), code.bits);
  if (code.scales.defined()) {
    rows.scales = code.scales.data<bf16>();
    rows.groups = static_cast<int>(code.scales.dim(-1));
  }
  // 4 bits: kSlice / 2 bytes.
  const int64_t bytes =
      rows.storage == Storage::i4 ? kSlice / 2 : kSlice * static_cast<int64_t>(size_of(x.dtype()));
  const int64_t row_bytes = rows.stride * static_cast<int64_t>(size_of(x.dtype()));
  rows.slices_are_aligned = width % kSlice == 0 && row_bytes % bytes == 0 &&
                            reinterpret_cast<uintptr_t>(rows.values) % 16 == 0;
  return rows;
}
inline StoredRows stored_rows(const Tensor& x) { return stored_rows(x, {}, x.dim(-1)); }

inline StoredRows keys_of(const AttentionInputs& in) {
  return stored_rows(in.kv.k, in.kv.k_code, in.q.dim(3));
}
inline StoredRows values_of(const AttentionInputs& in) {
  const bool own = in.kv.v.defined();
  return stored_rows(own ? in.kv.v : in.kv.k, own ? in.kv.v_code : in.kv.k_code,
                     in.kv.width_of_values());
}

/// How elements of type T are stored.
template <class T>
inline constexpr Storage kStorageOf = kDTypeOf<T> == DType::f64   ? Storage::f64
                                      : kDTypeOf<T> == DType::f32 ? Storage::f32
                                                                  : Storage::bf16;

/// kSlice integers of 8 bits, by one load.
template <class C>
__device__ void load_integers(const int8_t* from, C (&to)[kSlice]) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  for (int j = 0; j < kSlice; ++j) {
    const uint32_t word = j < 4 ? raw.x : raw.y;
    to[j] = static_cast<C>(static_cast<int8_t>(static_cast<uint8_t>(word >> (8U * (j % 4U)))));
  }
}

/// Reads numbers of one storage type.
template <Storage kStorage>
struct Reader {
  const StoredRows& rows;

  /// The integer of byte `byte`, whose lower or upper half a code of 4 bits is.
  static __device__ int four_bits(int8_t byte, bool upper) {
    return upper ? byte >> 4 : static_cast<int8_t>(static_cast<uint8_t>(byte) << 4U) >> 4;
  }

  /// Number i of a vector.
  template <class C>
  __device__ C number(int64_t vector, int i) const {
    if constexpr (kStorage == Storage::f64) {
      return static_cast<C>(static_cast<const double*>(rows.values)[vector * rows.stride + i]);
    } else if constexpr (kStorage == Storage::f32) {
      return static_cast<C>(static_cast<const float*>(rows.values)[vector * rows.stride + i]);
    } else if constexpr (kStorage == Storage::bf16) {
      return widen<C>(static_cast<const bf16*>(rows.values)[vector * rows.stride + i]);
    } else if constexpr (kStorage == Storage::f16) {
      return widen<C>(static_cast<const f16*>(rows.values)[vector * rows.stride + i]);
    } else {
      const auto* codes = static_cast<const int8_t*>(rows.values) + vector * rows.stride;
      const int q = kStorage == Storage::i8 ? codes[i] : four_bits(codes[i / 2], i % 2 != 0);
      const bf16 scale = rows.scales[vector * rows.groups + i / static_cast<int>(KVCode::kGroup)];
      // The product is rounded to f32 where the compute type is f64, too: what a cache holds.
      return static_cast<C>(widen<float>(scale) * static_cast<float>(q));
    }
  }

  /// Numbers [i, i + kSlice) of a vector, zeros beyond its width. One load where that can be.
  template <class C>
  __device__ void slice(int64_t vector, int i, C (&to)[kSlice]) const {
    if (!rows.slices_are_aligned) {
      for (int j = 0; j < kSlice; ++j) {
        to[j] = i + j < rows.width ? number<C>(vector, i + j) : C(0);
      }
      return;
    }
    if (i >= rows.width) {
      for (int j = 0; j < kSlice; ++j) {
        to[j] = C(0);
      }
      return;
    }
    whole_slice(vector, i, to);
  }

 private:
  template <class C>
  __device__ void whole_slice(int64_t vector, int i, C (&to)[kSlice]) const {
    const int64_t at = vector * rows.stride + i;
    if constexpr (kStorage == Storage::f64) {
      const auto* from =
          reinterpret_cast<const double2*>(static_cast<const double*>(rows.values) + at);
      for (int j = 0; j < kSlice; j += 2) {
        const double2 two = from[j / 2];
        to[j] = static_cast<C>(two.x);
        to[j + 1] = static_cast<C>(two.y);
      }
    } else if constexpr (kStorage == Storage::f32) {
      const auto* from =
          reinterpret_cast<const float4*>(static_cast<const float*>(rows.values) + at);
      for (int j = 0; j < kSlice; j += 4) {
        const float4 four = from[j / 4];
        to[j] = static_cast<C>(four.x);
        to[j + 1] = static_cast<C>(four.y);
        to[j + 2] = static_cast<C>(four.z);
        to[j + 3] = static_cast<C>(four.w);
      }
    } else if constexpr (kStorage == Storage::bf16 || kStorage == Storage::f16) {
      const uint4 raw =
          *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(rows.values) + at);
      const uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
      for (int j = 0; j < kSlice; ++j) {
        const auto bits = static_cast<uint16_t>(pairs[j / 2] >> (j % 2 != 0 ? 16U : 0U));
        if constexpr (kStorage == Storage::bf16) {
          to[j] = static_cast<C>(__uint_as_float(static_cast<uint32_t>(bits) << 16U));
        } else {
          to[j] = static_cast<C>(__half2float(__ushort_as_half(bits)));
        }
      }
    } else {
      coded_slice(vector, i, to);
    }
  }

  template <class C>
  __device__ void coded_slice(int64_t vector, int i, C (&to)[kSlice]) const {
    const auto* codes = static_cast<const int8_t*>(rows.values) + vector * rows.stride;
    const float scale =
        widen<float>(rows.scales[vector * rows.groups + i / static_cast<int>(KVCode::kGroup)]);
    if constexpr (kStorage == Storage::i8) {
      float integers[kSlice];
      load_integers(codes + i, integers);
      for (int j = 0; j < kSlice; ++j) {
        to[j] = static_cast<C>(scale * integers[j]);
      }
    } else {
      const uint32_t raw = *reinterpret_cast<const uint32_t*>(codes + i / 2);
      for (int j = 0; j < kSlice; ++j) {
        // The four bits at the top, and back with their sign.
        const int q = static_cast<int>(raw << (28U - 4U * static_cast<unsigned>(j))) >> 28;
        to[j] = static_cast<C>(scale * static_cast<float>(q));
      }
    }
  }
};

/// Calls f(Reader) for the type the rows have: once for a loop, not for every number.
template <class C, class F>
__device__ void with_reader(const StoredRows& rows, const F& f) {
  switch (rows.storage) {
    case Storage::f64:
      if constexpr (sizeof(C) == sizeof(double)) {
        f(Reader<Storage::f64>{rows});
      }
      return;
    case Storage::f32:
      return f(Reader<Storage::f32>{rows});
    case Storage::bf16:
      return f(Reader<Storage::bf16>{rows});
    case Storage::f16:
      return f(Reader<Storage::f16>{rows});
    case Storage::i8:
      return f(Reader<Storage::i8>{rows});
    case Storage::i4:
      return f(Reader<Storage::i4>{rows});
  }
}

}  // namespace headroom::kernels::cuda
