// Reading, naming, dividing and encoding a corpus.
#include "text/corpus.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/check.h"
#include "tensor/file.h"
#include "text/hash.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The corpora of scripts/corpus.sh, by content: a renamed file keeps its name, a changed one loses
// it.
struct KnownCorpus {
  size_t bytes;
  std::string_view hash, name;
};
constexpr std::array kKnownCorpora = {
    KnownCorpus{1115394, "ae717de95b0441526572a3fb9fde75d3", "Tiny Shakespeare"},
    KnownCorpus{4404412, "84a376826991056472eb6373bb6f38a6", "King James Bible"},
};

bool is(const Corpus& corpus, const KnownCorpus& known) {
  return known.bytes == corpus.text.size() && known.hash == corpus.hash;
}

std::string display_name(const Corpus& corpus, const std::filesystem::path& path) {
  for (const KnownCorpus& known : kKnownCorpora) {
    if (is(corpus, known)) {
      return std::string(known.name);
    }
  }
  return path.filename().string();
}

size_t division(std::string_view text, double val_fraction) {
  auto at =
      static_cast<size_t>(std::floor((1.0 - val_fraction) * static_cast<double>(text.size())));
  // On to the end of a character that the first part has begun; within other bytes it stays.
  for (size_t back = 1; back <= std::min<size_t>(3, at) && at < text.size(); ++back) {
    const size_t length = decode_char(text, at - back).length;
    if (length > back) return at - back + length;
  }
  return at;
}

}  // namespace

std::string_view split_name(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::val:
      return "val";
    case Split::all:
      break;
  }
  return "all";
}

std::string_view Corpus::split(Split part) const {
  const std::string_view whole = text;
  if (part == Split::all) return whole;
  return part == Split::train ? whole.substr(0, val_begin) : whole.substr(val_begin);
}

bool Corpus::is_tiny_shakespeare() const { return is(*this, kKnownCorpora[0]); }

Corpus load_corpus(const std::filesystem::path& path, double val_fraction) {
  check_input(val_fraction >= 0 && val_fraction < 1,
              "[corpus] val_fraction must be at least 0 and below 1: got {}", val_fraction);
  Corpus corpus;
  corpus.text = read_file(path);
  if (corpus.text.starts_with(kByteOrderMark)) {
    corpus.text.erase(0, kByteOrderMark.size());
    corpus.notes.push_back(
        fmt::format("{}: the byte-order mark at its start is left out", path.string()));
  }
  if (const size_t invalid = first_invalid_byte(corpus.text); invalid < corpus.text.size()) {
    corpus.notes.push_back(
        fmt::format("{}: not UTF-8 from byte offset {} on (byte {:#04x}); a char tokenizer refuses "
                    "it, byte and "
                    "bpe keep every byte as it is",
                    path.string(), invalid, static_cast<uint8_t>(corpus.text[invalid])));
  }
  corpus.hash = content_hash(corpus.text);
  corpus.name = display_name(corpus, path);
  corpus.val_begin = division(corpus.text, val_fraction);
  return corpus;
}

Tokens tokenize(const Corpus& corpus, Split part, const Tokenizer& tokenizer) {
  const std::string_view text = corpus.split(part);
  const size_t stop = tokenizer.encodable_prefix(text);
  if (stop < text.size()) {
    const size_t offset = stop + (part == Split::val ? corpus.val_begin : 0);
    const DecodedChar next = decode_char(text, stop);
    check_input(
        next.length > 0,
        "[corpus] {}: byte {:#04x} at byte offset {} of the text is not UTF-8, which a char "
        "tokenizer needs; convert the file or use tokenizer byte or bpe",
        corpus.name, static_cast<uint8_t>(text[stop]), offset);
    throw InputError(fmt::format(
        "[corpus] {}: {} at character {} (byte offset {}), in the {} part, is none of the {} "
        "characters that the training text showed. A char vocabulary holds only those, because a "
        "model learns nothing of a character it never meets: use tokenizer byte or bpe, or a text "
        "whose training part shows every character",
        corpus.name, describe_char(next.code),
        count_chars(std::string_view(corpus.text).substr(0, offset)) + 1, offset, split_name(part),
        tokenizer.vocab_size()));
  }
  return {tokenizer.encode(text), static_cast<int64_t>(text.size())};
}

void require_length(size_t tokens, Split part, int64_t block_size) {
  check_input(
      static_cast<int64_t>(tokens) > block_size,
      "[corpus] the {} part has {} token{}, but block_size {} needs at least {}: use a longer "
      "text or a smaller block_size{}",
      split_name(part), tokens, tokens == 1 ? "" : "s", block_size, block_size + 1,
      part == Split::val ? ", or raise val_fraction" : "");
}

TokenizedCorpus tokenize_splits(const Corpus& corpus, const Tokenizer& tokenizer,
                                int64_t block_size) {
  TokenizedCorpus result;
  result.train = tokenize(corpus, Split::train, tokenizer);
  require_length(result.train.ids.size(), Split::train, block_size);
  result.val = tokenize(corpus, Split::val, tokenizer);
  require_length(result.val.ids.size(), Split::val, block_size);
  return result;
}

}  // namespace headroom::text
