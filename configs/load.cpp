// YAML to Config by way of yaml-cpp, whose types and exceptions stay in this file.
#include "configs/load.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "configs/keys.h"
#include "configs/rules.h"
#include "configs/source_text.h"
#include "configs/value.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

/// Where each key that was given got its value: "gqa.yaml:12" or "--set".
using Places = std::map<std::string, std::string>;

/// A value as a message shows it: on one line and not too long.
std::string shown(const YAML::Node& node) {
  constexpr size_t kLongest = 60;
  if (node.IsSequence()) {
    return "a list";
  }
  if (node.IsMap()) {
    return "a map";
  }
  if (!node.IsScalar()) {
    return "empty";
  }
  std::string text = node.Scalar();
  if (text.size() > kLongest) {
    size_t end = kLongest;
    while ((static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
      --end;  // not inside a UTF-8 character
    }
    text = text.substr(0, end) + "...";
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return node.Tag() == "?" ? text : '"' + text + '"';
}

/// Numbers and flags are plain scalars: "4" in quotes is text.
bool is_plain(const YAML::Node& node) { return node.IsScalar() && node.Tag() == "?"; }

template <class Number>
bool read_number(const YAML::Node& node, Number& value) {
  if (!is_plain(node)) {
    return false;
  }
  const std::string& text = node.Scalar();
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

bool read(const YAML::Node& node, int64_t& value) { return read_number(node, value); }
bool read(const YAML::Node& node, double& value) { return read_number(node, value); }
bool read(const YAML::Node& node, bool& value) {
  if (!is_plain(node) || (node.Scalar() != "true" && node.Scalar() != "false")) {
    return false;
  }
  value = node.Scalar() == "true";
  return true;
}
bool read(const YAML::Node& node, std::string& value) {
  if (!node.IsScalar()) {
    return false;
  }
  value = node.Scalar();
  return true;
}
template <class E>
requires std::is_enum_v<E>
bool read(const YAML::Node& node, E& value) {
  for (const auto& [each, name] : spellings(E{})) {
    if (node.IsScalar() && node.Scalar() == name) {
      value = each;
      return true;
    }
  }
  return false;
}

template <class T>
bool read(const YAML::Node& node, std::vector<T>& value) {
  if (!node.IsSequence()) {
    return false;
  }
  value.clear();
  for (const YAML::Node& item : node) {
    if (!read(item, value.emplace_back())) {
      return false;
    }
  }
  return true;
}

/// Puts `node` into the field `section`.`key`.
void assign(Config& config, const std::string& section, const std::string& key,
            const YAML::Node& node, const std::string& place) {
  bool known = false;
  for_each_field(config, [&](std::string_view in, const Field& field, auto& value) {
    if (in != section || field.name != key) {
      return;
    }
    known = true;
    using T = std::remove_cvref_t<decltype(value)>;
    check_input(read(node, value), "{}: {}.{} is {}, but must be {}", place, section, key,
                shown(node), allowed<T>(field));
  });
  if (!known) {
    throw InputError(
        fmt::format("{}: {}.{} is no key: {}", place, section, key, suggestion(section, key)));
  }
}

/// Notes where `key` was given; refuses it when it was given before.
void give(Places& places, const std::string& key, const std::string& place) {
  const auto [earlier, is_new] = places.emplace(key, place);
  check_input(is_new, "{}: {} is repeated: it was given at {} too", place, key, earlier->second);
}

std::string place_of(const std::string& source, const YAML::Node& node) {
  return node.Mark().is_null() ? source : fmt::format("{}:{}", source, node.Mark().line + 1);
}

std::string key_text(const YAML::Node& key, const std::string& place) {
  check_input(key.IsScalar(), "{}: a key is {}, but must be text", place, shown(key));
  return key.Scalar();
}

void read_section(Config& config, Places& places, const std::string& section,
                  const YAML::Node& body, const std::string& source, const std::string& place) {
  check_input(body.IsMap() || body.IsNull(), "{}: {} is {}, but must be a map of keys", place,
              section, shown(body));
  for (const auto& entry : body) {
    const std::string at = place_of(source, entry.first);
    const std::string key = key_text(entry.first, at);
    give(places, fmt::format("{}.{}", section, key), at);
    assign(config, section, key, entry.second, at);
  }
}

/// The one YAML document in `text`.
YAML::Node parse_yaml(std::string_view text, const std::string& source) {
  check_source_text(text, source);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    check_input(!documents.empty(), "{}:1:1: holds no YAML", source);
    check_input(documents.size() == 1, "{}: holds {} YAML documents, but must hold one", source,
                documents.size());
    return documents[0];
  } catch (const YAML::Exception& e) {
    const int line = e.mark.is_null() ? 1 : e.mark.line + 1;
    const int column = e.mark.is_null() ? 1 : e.mark.column + 1;
    const bool deep = dynamic_cast<const YAML::DeepRecursion*>(&e) != nullptr;
    throw InputError(fmt::format("{}:{}:{}: not valid YAML: {}", source, line, column,
                                 deep ? "nested too deep" : e.msg));
  }
}

void read_document(Config& config, Places& places, std::string_view text,
                   const std::string& source) {
  const YAML::Node root = parse_yaml(text, source);
  check_input(root.IsMap(),
              "{}: the top level is {}, but must be a map with the sections of a config",
              place_of(source, root), shown(root));
  Places sections;
  for (const auto& entry : root) {
    const std::string place = place_of(source, entry.first);
    const std::string section = key_text(entry.first, place);
    check_input(is_section(section), "{}: {} is no section: {}", place, section,
                suggestion("", section));
    give(sections, section, place);
    read_section(config, places, section, entry.second, source, place);
  }
}

void read_override(Config& config, Places& places, const std::string& text) {
  const size_t equals = text.find('=');
  check_input(equals != std::string::npos, "--set {}: must be section.key=value", text);
  const std::string name = text.substr(0, equals);
  const std::string place = "--set " + text;
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    throw InputError(fmt::format("{}: {} has no section: {}", place, name, suggestion("", name)));
  }
  const std::string section = name.substr(0, dot);
  check_input(is_section(section), "{}: {} is no section: {}", place, section,
              suggestion(section, name.substr(dot + 1)));
  const std::string value = text.substr(equals + 1);
  const YAML::Node node = value.empty() ? YAML::Node() : parse_yaml(value, place);
  assign(config, section, name.substr(dot + 1), node, place);
  places[name] = place;
}

std::string place_of_problem(const Places& places, const Problem& problem,
                             const std::string& source) {
  for (const std::string& key : problem.keys) {
    if (const auto found = places.find(key); found != places.end()) {
      return found->second;
    }
  }
  return source;
}

void clip_warmup(Config& config, const Places& places, const std::string& source,
                 std::vector<std::string>* notes) {
  TrainConfig& train = config.train;
  if (train.warmup_steps <= train.steps) {
    return;
  }
  if (notes != nullptr) {
    notes->push_back(fmt::format(
        "{}: train.warmup_steps is {} and train.steps is {}: the warm-up is clipped to {} steps",
        place_of_problem(places, {{"train.warmup_steps", "train.steps"}, ""}, source),
        train.warmup_steps, train.steps, train.steps));
  }
  train.warmup_steps = train.steps;
}

}  // namespace

Config parse_config(std::string_view text, const std::string& source,
                    std::span<const std::string> overrides, std::vector<std::string>* notes) {
  Config config;
  Places places;
  read_document(config, places, text, source);
  for (const std::string& each : overrides) {
    read_override(config, places, each);
  }
  if (const std::optional<Problem> problem = find_problem(config)) {
    throw InputError(
        fmt::format("{}: {}", place_of_problem(places, *problem, source), problem->message));
  }
  clip_warmup(config, places, source, notes);
  return config;
}

Config load_config(const std::filesystem::path& path, std::span<const std::string> overrides,
                   std::vector<std::string>* notes) {
  return parse_config(read_config_file(path), path.string(), overrides, notes);
}

Config load_run_config(const std::filesystem::path& run, std::span<const std::string> overrides,
                       std::vector<std::string>* notes) {
  std::error_code code;
  const bool folder = std::filesystem::is_directory(run, code);
  return load_config((folder ? run : run.parent_path()) / "config.yaml", overrides, notes);
}

}  // namespace headroom::configs
