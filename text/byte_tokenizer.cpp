// The simplest tokenizer: a byte is its own id.
#include "text/byte_tokenizer.h"

#include "text/tokenizer_json.h"

namespace headroom::text {
namespace {

std::vector<std::string> all_bytes() {
  std::vector<std::string> bytes(256);
  for (size_t byte = 0; byte < bytes.size(); ++byte) bytes[byte] = static_cast<char>(byte);
  return bytes;
}

}  // namespace

ByteTokenizer::ByteTokenizer() : Tokenizer(all_bytes()) {}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

std::string ByteTokenizer::to_json() const {
  return write_tokenizer_json({std::string(kind()), tokens(), {}});
}

}  // namespace headroom::text
