// Text to token ids and back. Three kinds, all stored as a Hugging Face tokenizer.json:
//   char  the code points seen in the training part of the corpus; anything else is refused
//   byte  the 256 bytes, id = value
//   bpe   byte-level BPE with GPT-2's split pattern; encodes any bytes
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::text {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "char", "byte" or "bpe".
  virtual std::string_view kind() const = 0;

  /// Ids are 0 to vocab_size() - 1.
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }

  /// Leading bytes of `text` that can be encoded: all of them, but for `char`, which stops at the
  /// first character it never saw and at the first byte that is not UTF-8.
  virtual size_t encodable_prefix(std::string_view text) const { return text.size(); }

  /// decode(encode(text)) == text, byte for byte. Throws InputError where encodable_prefix() stops,
  /// naming the character, its code point and its position.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  /// The tokens' bytes, joined. They need not be valid UTF-8: see Utf8Stream.
  std::string decode(std::span<const int32_t> ids) const;

  /// The bytes of one token. Throws Error for an id that is not in the vocabulary.
  std::string_view token_bytes(int32_t id) const;

  /// The content of tokenizer.json; equal tokenizers give equal bytes.
  virtual std::string to_json() const = 0;

  /// Writes to_json() to a file.
  void save(const std::filesystem::path& path) const;

  /// content_hash(to_json()): what a checkpoint stores to recognise its tokenizer.
  std::string hash() const;

 protected:
  explicit Tokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  std::vector<std::string> tokens_;  // the bytes of each token, by id
};

/// Makes a tokenizer of `kind` from the training part of a corpus. `vocab_size` is the size wanted
/// of a bpe (256 or more; fewer come out when the text has no pair left that occurs twice) and 0
/// for the others, whose size follows. What the user should be told is appended to `notes`. Throws
/// InputError for another kind, for a size that doesn't fit it, and for a `char` text that is not
/// UTF-8 (with the byte offset).
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view kind, int64_t vocab_size,
                                          std::string_view training_text,
                                          std::vector<std::string>& notes);

/// Reads what save() wrote. Throws InputError naming the file and what is wrong with it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace headroom::text
