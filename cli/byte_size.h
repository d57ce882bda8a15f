// Sizes of memory as people write them.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::cli {

/// Bytes in "8GiB", "1.5 GB", "512MiB" or "1000000": KiB, MiB, GiB and TiB are powers of 1024, kB
/// (KB), MB, GB and TB of 1000. Throws InputError, naming `option`, for anything else and for less
/// than one byte or more than 2^62.
int64_t parse_byte_size(const std::string& text, const std::string& option);

}  // namespace headroom::cli
