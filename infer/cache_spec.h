// The text that chooses a cache on the command line: `none`, or `static` with comma-separated
// parts.
#pragma once

#include <string>
#include <string_view>

#include "kernels/backend.h"

namespace headroom::infer {

struct CacheSpec {
  bool recompute = false;       // `none`: nothing is kept, every token recomputes its sequence
  kernels::AttentionMask mask;  // window=W and sinks=S; a window of 0: all keys
};

/// What --help says of a SPEC.
inline constexpr std::string_view kCacheSpecHelp =
    "none (recompute the whole sequence), or static with any of: window=W (keys a query sees, its "
    "own included; 0: all), sinks=S (first keys that are kept beside the window). "
    "Example: static,window=256,sinks=4";

/// Throws InputError that names the part of `text` it can't use and what is allowed.
CacheSpec parse_cache_spec(std::string_view text);

/// The shortest text that parses to `spec`: what tables call it.
std::string to_string(const CacheSpec& spec);

}  // namespace headroom::infer
