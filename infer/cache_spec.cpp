// Parsing the text that chooses a cache.
#include "infer/cache_spec.h"

#include <array>
#include <charconv>
#include <limits>
#include <set>

#include "tensor/check.h"

namespace headroom::infer {

namespace {

using configs::KVType;

/// Positions are int32, and window + sinks is one.
constexpr int64_t kMostKeys = std::numeric_limits<int32_t>::max() / 2;

constexpr std::string_view kParts =
    "window=W, sinks=S, dtype=T, k=T, v=T, rotate=hadamard, place=memory|host|file";

constexpr std::array<std::pair<Place, std::string_view>, 3> kPlaces = {
    {{Place::memory, "memory"}, {Place::host, "host"}, {Place::file, "file"}}};

std::string_view name_of_place(Place place) { return kPlaces[static_cast<size_t>(place)].second; }

int64_t read_count(std::string_view spec, std::string_view name, std::string_view digits) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check_input(error == std::errc() && end == digits.data() + digits.size() && value >= 0 &&
                  value <= kMostKeys,
              "[cache] {} is \"{}\" in \"{}\", but must be a whole number from 0 to {}", name,
              digits, spec, kMostKeys);
  return value;
}

KVType read_type(std::string_view spec, std::string_view name, std::string_view text) {
  const std::optional<KVType> type = configs::value_named<KVType>(text);
  check_input(type.has_value() && type != KVType::f64,
              "[cache] {} is \"{}\" in \"{}\", but must be f32, bf16, f16, int8 or int4", name,
              text, spec);
  return *type;
}

Place read_place(std::string_view spec, std::string_view text) {
  for (const auto& [place, name] : kPlaces) {
    if (name == text) {
      return place;
    }
  }
  throw InputError(fmt::format(
      "[cache] place is \"{}\" in \"{}\", but must be memory, host or file", text, spec));
}

void read_part(CacheSpec& spec, std::string_view text, std::string_view name,
               std::string_view value) {
  if (name == "window") {
    spec.mask.window = read_count(text, name, value);
  } else if (name == "sinks") {
    spec.mask.sinks = read_count(text, name, value);
  } else if (name == "dtype") {
    spec.k = spec.v = read_type(text, name, value);
  } else if (name == "k") {
    spec.k = read_type(text, name, value);
  } else if (name == "v") {
    spec.v = read_type(text, name, value);
  } else if (name == "place") {
    spec.place = read_place(text, value);
  } else if (name == "rotate") {
    check_input(value == "hadamard", "[cache] rotate is \"{}\" in \"{}\", but must be hadamard",
                value, text);
    spec.hadamard = true;
  } else {
    throw InputError(
        fmt::format("[cache] \"{}={}\" in \"{}\" is no part of a static cache: the parts are {}",
                    name, value, text, kParts));
  }
}

/// Reads ",name=value" after ",name=value"; a name may come once, and dtype beside neither k nor v.
void read_parts(CacheSpec& spec, std::string_view text, std::string_view rest) {
  std::set<std::string_view> names;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(part.size());
    const size_t equals = part.find('=');
    check_input(equals != std::string_view::npos,
                "[cache] \"{}\" in \"{}\" is no part of a static cache: the parts are {}", part,
                text, kParts);
    const std::string_view name = part.substr(0, equals);
    check_input(names.insert(name).second, "[cache] {} is given twice in \"{}\"", name, text);
    read_part(spec, text, name, part.substr(equals + 1));
  }
  check_input(!names.contains("dtype") || (!names.contains("k") && !names.contains("v")),
              "[cache] \"{}\" gives dtype beside k or v: give dtype for both, or each its own",
              text);
}

}  // namespace

configs::KVTypes CacheSpec::types(DType activations) const {
  const configs::KVTypes own = configs::kv_types_of(activations);
  return {k.value_or(own.k), v.value_or(own.v)};
}

bool CacheSpec::lossless(DType activations) const {
  return types(activations) == configs::kv_types_of(activations);
}

CacheSpec parse_cache_spec(std::string_view text) {
  CacheSpec spec;
  const std::string_view kind = text.substr(0, text.find(','));
  check_input(kind == "none" || kind == "static",
              "[cache] \"{}\" is no kind of cache: none, or static with comma-separated parts ({})",
              kind, kParts);
  spec.recompute = kind == "none";
  const std::string_view rest = text.substr(kind.size());
  check_input(!spec.recompute || rest.empty(),
              "[cache] none keeps nothing and has no parts: got \"{}\"", text);
  read_parts(spec, text, rest);
  check_input(spec.mask.window > 0 || spec.mask.sinks == 0,
              "[cache] sinks={} in \"{}\" needs a window=W: without one every key is kept",
              spec.mask.sinks, text);
  return spec;
}

void check_cache_spec(const CacheSpec& spec, const configs::ModelConfig& model) {
  if (!configs::kv_shape(model).value_in_key) {
    return;
  }
  check_input(spec.k == spec.v,
              "[cache] k and v differ in \"{}\", but model.attention mla stores one latent for "
              "both: give dtype=T",
              to_string(spec));
  check_input(!spec.hadamard,
              "[cache] rotate=hadamard in \"{}\" turns keys, but under model.attention mla they "
              "are the values too",
              to_string(spec));
}

std::string to_string(const CacheSpec& spec) {
  std::string text = spec.recompute ? "none" : "static";
  if (spec.mask.window > 0) {
    text += fmt::format(",window={}", spec.mask.window);
  }
  if (spec.mask.sinks > 0) {
    text += fmt::format(",sinks={}", spec.mask.sinks);
  }
  if (spec.k && spec.k == spec.v) {
    text += fmt::format(",dtype={}", configs::name_of(*spec.k));
  } else {
    text += spec.k ? fmt::format(",k={}", configs::name_of(*spec.k)) : "";
    text += spec.v ? fmt::format(",v={}", configs::name_of(*spec.v)) : "";
  }
  text += spec.hadamard ? ",rotate=hadamard" : "";
  text += spec.place == Place::memory ? "" : fmt::format(",place={}", name_of_place(spec.place));
  return text;
}

}  // namespace headroom::infer
