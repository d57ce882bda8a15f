// Refuses what is no config before it is parsed.
#include "configs/source_text.h"

#include <system_error>

#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::configs {
namespace {

constexpr int kMaxDepth = 100;

/// Length of the well-formed UTF-8 character at `text[i]`, or 0 (Unicode 15, table 3-7).
size_t character_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U;
  };
  const auto follows = [&](size_t k) { return (byte(k) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first <= 0xDF && follows(1)) {
    return 2;
  }
  if (first >= 0xE0 && first <= 0xEF && follows(1) && follows(2)) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4 && follows(1) && follows(2) && follows(3)) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

bool is_control(std::string_view text, size_t i) {
  const auto c = static_cast<unsigned char>(text[i]);
  const bool line_end = c == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
  return (c < 0x20 && c != '\n' && c != '\t' && !line_end) || c == 0x7F;
}

}  // namespace

std::string read_config_file(const std::filesystem::path& path) {
  std::error_code code;
  const std::filesystem::file_status status = std::filesystem::status(path, code);
  check_input(std::filesystem::exists(status), "{}: no such config file", path.string());
  check_input(!std::filesystem::is_directory(status), "{}: is a directory, not a config file",
              path.string());
  check_input(std::filesystem::is_regular_file(status), "{}: is no regular file", path.string());
  const auto size = std::filesystem::file_size(path, code);
  check_input(!code, "{}: can't be read: {}", path.string(), code.message());
  check_input(size <= kMaxConfigBytes, "{}: has {} bytes, but a config has at most {}",
              path.string(), size, kMaxConfigBytes);
  return read_file(path);
}

void check_source_text(std::string_view text, const std::string& source) {
  check_input(text.size() <= kMaxConfigBytes, "{}: has {} bytes, but a config has at most {}",
              source, text.size(), kMaxConfigBytes);
  check_input(text.find_first_not_of(" \t\r\n") != std::string_view::npos, "{}:1:1: is empty",
              source);
  int line = 1;
  int column = 1;
  int depth = 0;
  bool indentation = true;
  for (size_t i = 0; i < text.size(); ++column) {
    const size_t length = character_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    check_input(length != 0, "{}:{}:{}: byte 0x{:02X} is not valid UTF-8", source, line, column,
                byte);
    check_input(!is_control(text, i), "{}:{}:{}: control character 0x{:02X} is not allowed", source,
                line, column, byte);
    check_input(!(indentation && byte == '\t'), "{}:{}:{}: a tab can't indent YAML: use spaces",
                source, line, column);
    // Brackets inside quotes and comments count too: no config has a hundred of those either.
    depth += byte == '[' || byte == '{' ? 1 : (byte == ']' || byte == '}') && depth > 0 ? -1 : 0;
    check_input(depth <= kMaxDepth, "{}:{}:{}: brackets are nested more than {} deep", source, line,
                column, kMaxDepth);
    indentation = byte == '\n' || (indentation && byte == ' ');
    if (byte == '\n') {
      ++line;
      column = 0;
    }
    i += length;
  }
}

}  // namespace headroom::configs
