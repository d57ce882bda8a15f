// Learns the merges of a byte-level BPE from text (Sennrich et al. 2016, arXiv 1508.07909,
// algorithm 1).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_tokenizer.h"

namespace headroom::text {

/// Training looks at each distinct piece once, however often it occurs; memory is about 25 bytes
/// for each of their bytes, so below 1 GiB at this bound.
inline constexpr size_t kMaxDistinctBytes = size_t{32} << 20;

/// Starts from the 256 bytes and merges the most frequent pair of neighbours until there are
/// `vocab_size` tokens (256 or more, else InputError) or no pair occurs twice. Equally frequent
/// pairs go by the lower left id, then the lower right id: the same text gives the same tokenizer
/// everywhere, and the one Hugging Face's BpeTrainer gives (initial alphabet: the bytes;
/// min_frequency 2). Where two merges spell the same token it keeps one id, as there. Once the
/// distinct pieces hold `max_distinct_bytes`, further ones are left out (the one that crosses the
/// bound is cut between characters) and a note says so. Natural language stays far below; text
/// without spaces, being one piece, does not.
std::unique_ptr<BpeTokenizer> train_bpe(std::string_view text, int64_t vocab_size,
                                        std::vector<std::string>& notes,
                                        size_t max_distinct_bytes = kMaxDistinctBytes);

}  // namespace headroom::text
