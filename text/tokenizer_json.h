// The tokenizer.json of Hugging Face's `tokenizers` library, as far as headroom's three kinds need
// it. All are its BPE model: `bpe` behind the ByteLevel pre-tokenizer with the split pattern,
// `byte` behind ByteLevel without it and with no merges, `char` behind none and with no merges. The
// library loads each and gives the same ids (but for characters unknown to a `char`, which it drops
// and headroom refuses).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::text {

/// Two neighbouring tokens that become one; its rank is its place in the list.
struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;  // the id of the token they become
};

struct TokenizerFile {
  std::string kind;                 // "char", "byte" or "bpe"
  std::vector<std::string> tokens;  // bytes, by id
  std::vector<MergeRule> merges;    // empty unless bpe
};

/// The printable character that stands for each byte in the file's vocabulary, as GPT-2 chose them:
/// itself where it is printable in Latin-1, else U+0100 and on (openai/gpt-2, encoder.py).
const std::array<char32_t, 256>& byte_characters();

/// The 256 single bytes in the order of their characters: ids 0 to 255 of a bpe, as in GPT-2.
std::vector<std::string> byte_level_alphabet();

std::string write_tokenizer_json(const TokenizerFile& file);

/// `source` names the file in messages. Throws InputError when it is not one of the three forms,
/// when ids are missing or repeated, or when a merge names an unknown token.
TokenizerFile read_tokenizer_json(std::string_view json, std::string_view source);

}  // namespace headroom::text
