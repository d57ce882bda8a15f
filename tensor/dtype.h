// The element types a tensor can hold.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headroom {

enum class DType : uint8_t { f64, f32, bf16, f16, i8, i32 };

/// bfloat16 as stored: the upper half of a float32.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN.
  explicit bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const bool nan = (u & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40U : (u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

/// IEEE half precision as stored.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  explicit f16(float x);
  explicit operator float() const;
};

template <class T>
inline constexpr bool kIsElement = false;
template <class T>
inline constexpr DType kDTypeOf = DType::f32;
#define HEADROOM_ELEMENT(type, name)             \
  template <>                                    \
  inline constexpr bool kIsElement<type> = true; \
  template <>                                    \
  inline constexpr DType kDTypeOf<type> = DType::name
HEADROOM_ELEMENT(double, f64);
HEADROOM_ELEMENT(float, f32);
HEADROOM_ELEMENT(bf16, bf16);
HEADROOM_ELEMENT(f16, f16);
HEADROOM_ELEMENT(int8_t, i8);
HEADROOM_ELEMENT(int32_t, i32);
#undef HEADROOM_ELEMENT

struct DTypeTraits {
  std::string_view name;
  size_t bytes;
  bool floating;
};
inline constexpr DTypeTraits kDTypeTraits[] = {{"f64", 8, true},  {"f32", 4, true},
                                               {"bf16", 2, true}, {"f16", 2, true},
                                               {"i8", 1, false},  {"i32", 4, false}};
constexpr const DTypeTraits& traits(DType dtype) {
  return kDTypeTraits[static_cast<size_t>(dtype)];
}
/// Bytes of one element.
constexpr size_t size_of(DType dtype) { return traits(dtype).bytes; }
/// "f32", "bf16", ...
constexpr std::string_view name_of(DType dtype) { return traits(dtype).name; }
/// Whether gradients and arithmetic make sense for it.
constexpr bool is_floating(DType dtype) { return traits(dtype).floating; }

/// The type that arithmetic on `dtype` is done in: f64 for f64, otherwise f32.
inline DType compute_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace headroom
