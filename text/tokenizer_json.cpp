// Reading and writing tokenizer.json: the only file of this layer that sees a JSON library.
#include "text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "tensor/check.h"
#include "text/utf8.h"

namespace headroom::text {
namespace {

using Json = nlohmann::json;

// Bytes as the file spells them.
std::string spell(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) append_char(spelled, byte_characters()[static_cast<uint8_t>(byte)]);
  return spelled;
}

// The reverse of spell(); false when `spelled` holds a character that stands for no byte.
bool unspell(std::string_view spelled, std::string& bytes) {
  static const std::unordered_map<char32_t, char> byte_of = [] {
    std::unordered_map<char32_t, char> map;
    for (int byte = 0; byte < 256; ++byte) {
      map[byte_characters()[static_cast<size_t>(byte)]] = static_cast<char>(byte);
    }
    return map;
  }();
  for (size_t at = 0; at < spelled.size();) {
    const DecodedChar next = decode_char(spelled, at);
    const auto found = byte_of.find(next.code);
    if (next.length == 0 || found == byte_of.end()) return false;
    bytes += found->second;
    at += next.length;
  }
  return true;
}

Json byte_level(bool split) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", split}};
}

// Which of the three forms the file has, by its pre-tokenizer.
std::string kind_of(const Json& file, std::string_view source) {
  const Json& pre = file.at("pre_tokenizer");
  if (pre.is_null()) return "char";
  check_input(pre.at("type") == "ByteLevel" && pre.value("add_prefix_space", true) == false,
              "[tokenizer] {}: the pre-tokenizer must be null or ByteLevel without a prefix space",
              source);
  return pre.value("use_regex", true) ? "bpe" : "byte";
}

std::vector<std::string> read_vocabulary(const Json& vocab, std::string_view source) {
  std::vector<std::string> spelled(vocab.size());
  std::vector<bool> taken(vocab.size(), false);
  for (const auto& [token, id_value] : vocab.items()) {
    const auto id = id_value.get<int64_t>();
    check_input(
        id >= 0 && id < static_cast<int64_t>(spelled.size()) && !taken[static_cast<size_t>(id)],
        "[tokenizer] {}: the {} ids must be 0 to {}, each once: token \"{}\" has {}", source,
        spelled.size(), static_cast<int64_t>(spelled.size()) - 1, token, id);
    taken[static_cast<size_t>(id)] = true;
    spelled[static_cast<size_t>(id)] = token;
  }
  return spelled;
}

// A merge is "left right", or ["left", "right"] as newer versions of the library write it.
std::pair<std::string, std::string> read_pair(const Json& merge, std::string_view source) {
  if (merge.is_array()) {
    check_input(merge.size() == 2, "[tokenizer] {}: a merge has two tokens, not {}", source,
                merge.size());
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  const auto joined = merge.get<std::string>();
  const size_t space = joined.find(' ');
  check_input(space != std::string::npos, "[tokenizer] {}: merge \"{}\" is not two tokens", source,
              joined);
  return {joined.substr(0, space), joined.substr(space + 1)};
}

std::vector<MergeRule> read_merges(const Json& merges, const std::vector<std::string>& spelled,
                                   std::string_view source) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < spelled.size(); ++id) ids[spelled[id]] = static_cast<int32_t>(id);
  const auto id_of = [&](const std::string& token) {
    const auto found = ids.find(token);
    check_input(found != ids.end(), "[tokenizer] {}: a merge needs \"{}\", which has no id", source,
                token);
    return found->second;
  };
  std::vector<MergeRule> rules;
  rules.reserve(merges.size());
  for (const Json& merge : merges) {
    const auto [left, right] = read_pair(merge, source);
    rules.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
  return rules;
}

// Every kind's promise about its vocabulary, on which encode() relies.
void check_vocabulary(const TokenizerFile& file, std::string_view source) {
  if (file.kind == "char") {
    for (const std::string& token : file.tokens) {
      check_input(!token.empty() && decode_char(token, 0).length == token.size(),
                  "[tokenizer] {}: in a char vocabulary each token is one character, not \"{}\"",
                  source, token);
    }
    return;
  }
  std::array<bool, 256> seen{};
  for (const std::string& token : file.tokens) {
    check_input(!token.empty(), "[tokenizer] {}: a token is empty", source);
    if (token.size() == 1) seen[static_cast<uint8_t>(token[0])] = true;
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  check_input(missing == seen.end(), "[tokenizer] {}: no token for byte {:#04x}", source,
              missing - seen.begin());
  if (file.kind != "byte") return;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    check_input(file.tokens.size() == 256 && static_cast<uint8_t>(file.tokens[id][0]) == id,
                "[tokenizer] {}: a byte vocabulary is the 256 bytes, id = value", source);
  }
}

TokenizerFile read_checked(std::string_view text, std::string_view source) {
  const Json json = Json::parse(text);
  TokenizerFile file{kind_of(json, source), {}, {}};
  const Json& model = json.at("model");
  check_input(model.at("type") == "BPE" && json.value("added_tokens", Json::array()).empty() &&
                  json.value("normalizer", Json()).is_null(),
              "[tokenizer] {}: only a BPE model without added tokens and normalizer is supported",
              source);
  const std::vector<std::string> spelled = read_vocabulary(model.at("vocab"), source);
  file.merges = read_merges(model.at("merges"), spelled, source);
  check_input(file.kind == "bpe" || file.merges.empty(),
              "[tokenizer] {}: a {} tokenizer has no merges, this one has {}", source, file.kind,
              file.merges.size());
  for (const std::string& token : spelled) {
    std::string bytes;
    if (file.kind == "char") {
      bytes = token;
    } else {
      check_input(unspell(token, bytes),
                  "[tokenizer] {}: token \"{}\" is not spelled in GPT-2's "
                  "byte characters",
                  source, token);
    }
    file.tokens.push_back(std::move(bytes));
  }
  check_vocabulary(file, source);
  return file;
}

}  // namespace

const std::array<char32_t, 256>& byte_characters() {
  static const std::array<char32_t, 256> characters = [] {
    std::array<char32_t, 256> table{};
    char32_t next = 0x100;
    for (size_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      table[byte] = printable ? static_cast<char32_t>(byte) : next++;
    }
    return table;
  }();
  return characters;
}

std::vector<std::string> byte_level_alphabet() {
  std::vector<std::string> alphabet(256);
  for (size_t byte = 0; byte < 256; ++byte)
    alphabet[byte] = std::string(1, static_cast<char>(byte));
  std::sort(alphabet.begin(), alphabet.end(), [](const std::string& a, const std::string& b) {
    const auto character = [](const std::string& s) {
      return byte_characters()[static_cast<uint8_t>(s[0])];
    };
    return character(a) < character(b);
  });
  return alphabet;
}

std::string write_tokenizer_json(const TokenizerFile& file) {
  const bool bytes = file.kind != "char";
  const auto spelled = [&](int32_t id) {
    const std::string& token = file.tokens[static_cast<size_t>(id)];
    return bytes ? spell(token) : token;
  };
  Json vocab = Json::object();
  for (size_t id = 0; id < file.tokens.size(); ++id) vocab[spelled(static_cast<int32_t>(id))] = id;
  Json merges = Json::array();
  for (const MergeRule& rule : file.merges) {
    merges.push_back(spelled(rule.left) + " " + spelled(rule.right));
  }
  const Json layer = bytes ? byte_level(file.kind == "bpe") : Json();
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", layer},
      {"post_processor", nullptr},
      {"decoder", bytes ? layer : Json{{"type", "Fuse"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}},
  };
  return json.dump(1) + "\n";
}

TokenizerFile read_tokenizer_json(std::string_view json, std::string_view source) {
  try {
    return read_checked(json, source);
  } catch (const Json::exception& error) {
    throw InputError(
        fmt::format("[tokenizer] {} is not a tokenizer.json: {}", source, error.what()));
  }
}

}  // namespace headroom::text
