// Suggestions for unknown keys, names of other frameworks included.
#include "configs/keys.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "configs/config.h"
#include "configs/nearest.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

struct Key {
  std::string section;
  std::string name;
  std::string full() const { return section + "." + name; }
};

// What nanoGPT, Hugging Face and others call our keys.
constexpr std::array<std::pair<std::string_view, std::string_view>, 25> kForeign = {{
    {"num_hidden_layers", "model.n_layer"},
    {"num_attention_heads", "model.n_head"},
    {"num_key_value_heads", "model.n_kv_head"},
    {"n_query_groups", "model.n_kv_head"},
    {"hidden_size", "model.n_embd"},
    {"d_model", "model.n_embd"},
    {"intermediate_size", "model.n_ff"},
    {"context_length", "model.block_size"},
    {"max_position_embeddings", "model.block_size"},
    {"rope_theta", "model.rope_base"},
    {"rms_norm_eps", "model.norm_eps"},
    {"kv_lora_rank", "model.kv_rank"},
    {"qk_rope_head_dim", "model.rope_head_dim"},
    {"sliding_window", "model.window"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"dataset", "data.corpus"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"learning_rate", "train.lr"},
    {"min_lr", "train.final_lr"},
    {"warmup_iters", "train.warmup_steps"},
    {"gradient_accumulation_steps", "train.grad_accumulation"},
    {"grad_clip", "train.clip_norm"},
    {"eval_interval", "train.eval_every"},
    {"dtype", "train.precision"},
}};

std::vector<Key> all_keys() {
  std::vector<Key> keys;
  const Config defaults;
  for_each_field(defaults, [&](std::string_view section, const Field& field, const auto&) {
    keys.push_back({std::string(section), std::string(field.name)});
  });
  return keys;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  const Config defaults;
  Config::sections(defaults, [&](std::string_view name, const auto&) { names.emplace_back(name); });
  return names;
}

/// "model or data" for the sections other than `section` that have a key of this name.
std::string home_of(std::string_view section, std::string_view name) {
  std::string list;
  for (const Key& key : all_keys()) {
    if (key.name == name && key.section != section) {
      list += (list.empty() ? "" : " or ") + key.section;
    }
  }
  return list;
}

/// The full key nearest to `name` among the keys of `section` (of all sections if it is empty) and
/// their names elsewhere.
std::string nearest_key(std::string_view section, std::string_view name) {
  std::vector<std::string> names;
  std::vector<std::string> full;
  for (const Key& key : all_keys()) {
    if (section.empty() || key.section == section) {
      names.push_back(key.name);
      full.push_back(key.full());
    }
  }
  for (const auto& [foreign, ours] : kForeign) {
    if (section.empty() || ours.substr(0, ours.find('.')) == section) {
      names.emplace_back(foreign);
      full.emplace_back(ours);
    }
  }
  const std::string found = nearest(name, names);
  const auto place = std::find(names.begin(), names.end(), found);
  return place == names.end() ? "" : full[static_cast<size_t>(place - names.begin())];
}

std::string choices(std::string_view section) {
  std::vector<std::string> names;
  for (const Key& key : all_keys()) {
    if (key.section == section) {
      names.push_back(key.name);
    }
  }
  return fmt::format("{} has {}", section, fmt::join(names, ", "));
}

}  // namespace

bool is_section(std::string_view section) {
  const std::vector<std::string> names = section_names();
  return std::find(names.begin(), names.end(), section) != names.end();
}

std::string suggestion(std::string_view section, std::string_view key) {
  const bool known_section = is_section(section);
  if (!known_section) {
    const std::string name = nearest(section.empty() ? key : section, section_names());
    if (!name.empty()) {
      return fmt::format("did you mean {}?", name);
    }
  }
  if (const std::string home = home_of(section, key); !home.empty()) {
    return fmt::format("it belongs to section {}", home);
  }
  for (const std::string_view where : {known_section ? section : "", std::string_view()}) {
    if (const std::string found = nearest_key(where, key); !found.empty()) {
      return fmt::format("did you mean {}?", found);
    }
  }
  return known_section ? choices(section)
                       : fmt::format("the sections are {}", fmt::join(section_names(), ", "));
}

}  // namespace headroom::configs
