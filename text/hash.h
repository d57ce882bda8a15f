// The fingerprint that ties a checkpoint to its tokenizer and a result to its corpus.
#pragma once

#include <string>
#include <string_view>

namespace headroom::text {

/// XXH3's 128 bits of `bytes` as 32 hexadecimal digits, in xxhsum's order. Not for secrets.
std::string content_hash(std::string_view bytes);

}  // namespace headroom::text
