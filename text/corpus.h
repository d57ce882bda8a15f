// A text file as training and validation text, and as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace headroom::text {

enum class Split { train, val, all };

/// "train", "val" or "all".
std::string_view split_name(Split split);

/// The text, byte for byte but for a byte-order mark at its start; carriage returns stay.
struct Corpus {
  std::string name;  // "Tiny Shakespeare" or "King James Bible" when the text is exactly that, else
                     // the file's name: what tables and reports call it
  std::string hash;  // content_hash(text)
  std::string text;
  size_t val_begin = 0;            // byte where the validation part begins, to the end
  std::vector<std::string> notes;  // what the user should be told, one sentence each

  std::string_view split(Split part) const;
  /// Whether it is that corpus by content: what published figures may stand beside.
  bool is_tiny_shakespeare() const;
};

/// Reads a file and divides it: the first floor((1 - val_fraction) * bytes) bytes are for training,
/// and those that finish a character begun there. The division is made on the text, so it is the
/// same for every tokenizer and losses in bits per byte can be compared. val_fraction is at least 0
/// and below 1. Throws InputError when the file can't be read.
Corpus load_corpus(const std::filesystem::path& path, double val_fraction);

/// Part of a corpus as tokens, with the bytes they stand for.
struct Tokens {
  std::vector<int32_t> ids;
  int64_t bytes = 0;
};

/// Throws InputError when the tokenizer (a `char`) can't encode the part, naming the corpus, the
/// character, its code point and its place in the text (a byte-order mark not counted).
Tokens tokenize(const Corpus& corpus, Split part, const Tokenizer& tokenizer);

/// Throws InputError with the count, the part and the minimum unless there are block_size + 1
/// tokens: one window and the target of its last token.
void require_length(size_t tokens, Split part, int64_t block_size);

/// Both parts, each checked with require_length() before the next is encoded.
struct TokenizedCorpus {
  Tokens train, val;
};
TokenizedCorpus tokenize_splits(const Corpus& corpus, const Tokenizer& tokenizer,
                                int64_t block_size);

}  // namespace headroom::text
