// The named choices a config can make. Each has one table of spellings, in the order the messages
// list them; reading, printing and refusing all use it.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tensor/device.h"

namespace headroom::configs {

template <class E, size_t N>
using Spellings = std::array<std::pair<E, std::string_view>, N>;

/// How a token's place enters: a learned table, or rotated queries and keys (RoFormer, arXiv
/// 2104.09864).
enum class Position { learned, rope };
constexpr Spellings<Position, 2> spellings(Position) {
  return {{{Position::learned, "learned"}, {Position::rope, "rope"}}};
}

/// Which components rope pairs up: (i, i + D/2) as Hugging Face stores it, or (2i, 2i + 1) as
/// published.
enum class RopeStyle { half, interleaved };
constexpr Spellings<RopeStyle, 2> spellings(RopeStyle) {
  return {{{RopeStyle::half, "half"}, {RopeStyle::interleaved, "interleaved"}}};
}

/// Grouped-query attention, multi-head and multi-query included (arXiv 2305.13245), or multi-head
/// latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1).
enum class AttentionKind { gqa, mla };
constexpr Spellings<AttentionKind, 2> spellings(AttentionKind) {
  return {{{AttentionKind::gqa, "gqa"}, {AttentionKind::mla, "mla"}}};
}

/// Whether each head learns one more logit, with no value, that its softmax may go to (gpt-oss,
/// arXiv 2508.10925).
enum class SinkKind { none, learned };
constexpr Spellings<SinkKind, 2> spellings(SinkKind) {
  return {{{SinkKind::none, "none"}, {SinkKind::learned, "learned"}}};
}

/// LayerNorm (arXiv 1607.06450) or RMSNorm (arXiv 1910.07467).
enum class Norm { layernorm, rmsnorm };
constexpr Spellings<Norm, 2> spellings(Norm) {
  return {{{Norm::layernorm, "layernorm"}, {Norm::rmsnorm, "rmsnorm"}}};
}

/// gelu is the tanh form GPT-2 used and gelu_erf the exact one (arXiv 1606.08415); swiglu is arXiv
/// 2002.05202; relu2, the squared ReLU, is arXiv 2109.08668.
enum class MlpKind { gelu, gelu_erf, swiglu, relu2 };
constexpr Spellings<MlpKind, 4> spellings(MlpKind) {
  return {{{MlpKind::gelu, "gelu"},
           {MlpKind::gelu_erf, "gelu_erf"},
           {MlpKind::swiglu, "swiglu"},
           {MlpKind::relu2, "relu2"}}};
}

/// Which parts carry a bias: nothing, the layer norms, or the layer norms and every projection in a
/// block.
enum class Bias { none, norm, all };
constexpr Spellings<Bias, 3> spellings(Bias) {
  return {{{Bias::none, "none"}, {Bias::norm, "norm"}, {Bias::all, "all"}}};
}

/// AdamW (arXiv 1711.05101) for everything, or Muon (Keller Jordan, 2024) for the hidden matrices
/// and AdamW for the rest.
enum class OptimizerKind { adamw, muon };
constexpr Spellings<OptimizerKind, 2> spellings(OptimizerKind) {
  return {{{OptimizerKind::adamw, "adamw"}, {OptimizerKind::muon, "muon"}}};
}

/// The rate after warm-up; wsd (warm-up, stable, decay: arXiv 2404.06395) is constant, then linear.
enum class Schedule { cosine, linear, constant, wsd };
constexpr Spellings<Schedule, 4> spellings(Schedule) {
  return {{{Schedule::cosine, "cosine"},
           {Schedule::linear, "linear"},
           {Schedule::constant, "constant"},
           {Schedule::wsd, "wsd"}}};
}

/// automatic is bf16 where the processor has a native bf16 dot product, else fp32.
enum class Precision { fp32, bf16, automatic };
constexpr Spellings<Precision, 3> spellings(Precision) {
  return {{{Precision::fp32, "fp32"}, {Precision::bf16, "bf16"}, {Precision::automatic, "auto"}}};
}

/// Code points seen in training, raw bytes, or byte-level BPE trained by headroom.
enum class TokenizerKind { char_level, byte, bpe };
constexpr Spellings<TokenizerKind, 3> spellings(TokenizerKind) {
  return {{{TokenizerKind::char_level, "char"},
           {TokenizerKind::byte, "byte"},
           {TokenizerKind::bpe, "bpe"}}};
}

/// Where a batch's sequences start: anywhere in the split, or one after the other.
enum class Order { random, sequential };
constexpr Spellings<Order, 2> spellings(Order) {
  return {{{Order::random, "random"}, {Order::sequential, "sequential"}}};
}

/// What stays equal across a sweep besides the data; configs/variants.h.
enum class Fairness { same_shape, same_params, same_cache };
constexpr Spellings<Fairness, 3> spellings(Fairness) {
  return {{{Fairness::same_shape, "same-shape"},
           {Fairness::same_params, "same-params"},
           {Fairness::same_cache, "same-cache"}}};
}

/// Rows of a sweep beside those of n_kv_head: other ways to a smaller cache, and what keeps a
/// window from losing quality; configs/variants.h.
enum class Relief { mla, window, learned_sink };
constexpr Spellings<Relief, 3> spellings(Relief) {
  return {
      {{Relief::mla, "mla"}, {Relief::window, "window"}, {Relief::learned_sink, "learned-sink"}}};
}

/// Where training runs. cuda is a word the reader knows, so that it can say why it refuses it.
enum class DeviceKind { cpu, cuda };
constexpr DeviceKind kind_of(Device device) {
  return device.type == Device::Type::cpu ? DeviceKind::cpu : DeviceKind::cuda;
}
/// The first device of a kind.
constexpr Device first_of(DeviceKind kind) {
  return kind == DeviceKind::cpu ? kCpu : Device{Device::Type::cuda, 0};
}
constexpr Spellings<DeviceKind, 2> spellings(DeviceKind) {
  return {{{DeviceKind::cpu, "cpu"}, {DeviceKind::cuda, "cuda"}}};
}

/// How a cache keeps a number of a key or value. int8 and int4 share a bf16 scale among 32 numbers
/// of a head (kernels::KVCode).
enum class KVType { f64, f32, bf16, f16, int8, int4 };
constexpr Spellings<KVType, 6> spellings(KVType) {
  return {{{KVType::f64, "f64"},
           {KVType::f32, "f32"},
           {KVType::bf16, "bf16"},
           {KVType::f16, "f16"},
           {KVType::int8, "int8"},
           {KVType::int4, "int4"}}};
}

/// "same-shape" for Fairness::same_shape, and so on.
template <class E>
requires std::is_enum_v<E>
constexpr std::string_view name_of(E value) {
  for (const auto& [each, name] : spellings(E{})) {
    if (each == value) {
      return name;
    }
  }
  return "?";
}

/// The value that is spelled `name`, if one is.
template <class E>
requires std::is_enum_v<E>
constexpr std::optional<E> value_named(std::string_view name) {
  for (const auto& [each, spelling] : spellings(E{})) {
    if (spelling == name) {
      return each;
    }
  }
  return std::nullopt;
}

}  // namespace headroom::configs
