// The text that chooses a cache on the command line: `none`, or `static` with comma-separated
// parts, which go together in any combination.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "configs/size.h"
#include "infer/kv_store.h"
#include "kernels/backend.h"

namespace headroom::infer {

struct CacheSpec {
  bool recompute = false;       // `none`: nothing is kept, every token recomputes its sequence
  kernels::AttentionMask mask;  // window=W and sinks=S; a window of 0: all keys
  /// How keys and values are stored (k=T, v=T, or dtype=T for both); absent: as the activations.
  std::optional<configs::KVType> k, v;
  /// rotate=hadamard: keys are turned before they are stored, which spreads an outlier over its
  /// head so that it costs the other numbers less precision (QuaRot, arXiv 2404.00456, section 4).
  bool hadamard = false;
  Place place = Place::memory;

  configs::KVTypes types(DType activations) const;
  Storage storage(DType activations) const { return {types(activations), place, hadamard}; }
  /// Whether logits must be those of the uncached pass: nothing is rounded that was not rounded
  /// before.
  bool lossless(DType activations) const;
};

/// What --help says of a SPEC.
inline constexpr std::string_view kCacheSpecHelp =
    "none (recompute the whole sequence), or static with any of: window=W (keys a query sees, its "
    "own included; 0: all), sinks=S (first keys that are kept beside the window), dtype=T or k=T "
    "and v=T (f32, bf16, f16, int8, int4), rotate=hadamard (of keys, before they are rounded), "
    "place=memory, host or file. Example: static,window=256,sinks=4,k=int8,v=int4";

/// Throws InputError that names the part of `text` it can't use and what is allowed.
CacheSpec parse_cache_spec(std::string_view text);

/// Throws InputError for what can't be with this model, naming both: a latent that is key and value
/// at once can't be stored in two types, nor turned for its keys' sake alone.
void check_cache_spec(const CacheSpec& spec, const configs::ModelConfig& model);

/// The shortest text that parses to `spec`: what tables call it.
std::string to_string(const CacheSpec& spec);

}  // namespace headroom::infer
