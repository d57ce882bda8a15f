// Parsing the text that chooses a cache.
#include "infer/cache_spec.h"

#include <charconv>
#include <limits>

#include "tensor/check.h"

namespace headroom::infer {

namespace {

/// Positions are int32, and window + sinks is one.
constexpr int64_t kMostKeys = std::numeric_limits<int32_t>::max() / 2;

int64_t read_count(std::string_view spec, std::string_view name, std::string_view digits) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check_input(error == std::errc() && end == digits.data() + digits.size() && value >= 0 &&
                  value <= kMostKeys,
              "[cache] {} is \"{}\" in \"{}\", but must be a whole number from 0 to {}", name,
              digits, spec, kMostKeys);
  return value;
}

void read_part(CacheSpec& spec, std::string_view text, std::string_view part) {
  const size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  int64_t* const value = name == "window"  ? &spec.mask.window
                         : name == "sinks" ? &spec.mask.sinks
                                           : nullptr;
  check_input(value != nullptr && equals != std::string_view::npos,
              "[cache] \"{}\" in \"{}\" is no part of a static cache: the parts are window=W and "
              "sinks=S",
              part, text);
  *value = read_count(text, name, part.substr(equals + 1));
}

}  // namespace

CacheSpec parse_cache_spec(std::string_view text) {
  CacheSpec spec;
  size_t comma = text.find(',');
  const std::string_view kind = text.substr(0, comma);
  check_input(kind == "none" || kind == "static",
              "[cache] \"{}\" is no kind of cache: none, or static with comma-separated parts "
              "(window=W, sinks=S)",
              kind);
  check_input(kind != "none" || comma == std::string_view::npos,
              "[cache] none keeps nothing and has no parts: got \"{}\"", text);
  spec.recompute = kind == "none";
  while (comma != std::string_view::npos) {
    const size_t begin = comma + 1;
    comma = text.find(',', begin);
    read_part(spec, text,
              text.substr(begin, comma == std::string_view::npos ? comma : comma - begin));
  }
  check_input(spec.mask.window > 0 || spec.mask.sinks == 0,
              "[cache] sinks={} in \"{}\" needs a window=W: without one every key is kept",
              spec.mask.sinks, text);
  return spec;
}

std::string to_string(const CacheSpec& spec) {
  std::string text = spec.recompute ? "none" : "static";
  if (spec.mask.window > 0) {
    text += fmt::format(",window={}", spec.mask.window);
  }
  if (spec.mask.sinks > 0) {
    text += fmt::format(",sinks={}", spec.mask.sinks);
  }
  return text;
}

}  // namespace headroom::infer
