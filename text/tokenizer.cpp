// What the three kinds share, and the two places that choose among them.
#include "text/tokenizer.h"

#include "tensor/check.h"
#include "tensor/file.h"
#include "text/bpe_tokenizer.h"
#include "text/bpe_trainer.h"
#include "text/byte_tokenizer.h"
#include "text/char_tokenizer.h"
#include "text/hash.h"
#include "text/tokenizer_json.h"

namespace headroom::text {

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += token_bytes(id);
  return text;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  check(id >= 0 && id < vocab_size(), "[tokenizer] token id must be 0 to {}: got {}",
        vocab_size() - 1, id);
  return tokens_[static_cast<size_t>(id)];
}

void Tokenizer::save(const std::filesystem::path& path) const { write_file(path, to_json()); }

std::string Tokenizer::hash() const { return content_hash(to_json()); }

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view kind, int64_t vocab_size,
                                          std::string_view training_text,
                                          std::vector<std::string>& notes) {
  if (kind == "bpe") return train_bpe(training_text, vocab_size, notes);
  check_input(kind == "char" || kind == "byte",
              "[tokenizer] data.tokenizer must be char, byte or bpe: got \"{}\"", kind);
  check_input(
      vocab_size == 0,
      "[tokenizer] data.vocab_size is chosen only for bpe; a {} vocabulary follows from the "
      "text: got {}",
      kind, vocab_size);
  if (kind == "byte") return std::make_unique<ByteTokenizer>();
  return CharTokenizer::from_text(training_text);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  TokenizerFile file = read_tokenizer_json(read_file(path), path.string());
  if (file.kind == "bpe") {
    return std::make_unique<BpeTokenizer>(std::move(file.tokens), std::move(file.merges));
  }
  if (file.kind == "byte") return std::make_unique<ByteTokenizer>();
  return std::make_unique<CharTokenizer>(std::move(file.tokens));
}

}  // namespace headroom::text
