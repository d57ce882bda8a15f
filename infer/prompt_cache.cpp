// Naming a cache's tensors in a file, and finding them again.
#include "infer/prompt_cache.h"

#include <algorithm>
#include <map>

#include "configs/print.h"
#include "nn/checkpoint.h"
#include "text/hash.h"

namespace headroom::infer {

namespace {

constexpr const char* kFormat = "headroom prompt cache 1";
constexpr const char* kTokens = "tokens";

std::string layer_name(int64_t layer, std::string_view part) {
  return fmt::format("layers.{}.{}", layer, part);
}

std::string mask_text(const kernels::AttentionMask& mask) {
  return fmt::format("{},{}", mask.window, mask.sinks);
}

int64_t common_beginning(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// A tensor of the file as numbers.
std::vector<int32_t> read_ids(const SafetensorsFile& file, const std::string& name) {
  check_input(file.has(name), "{}: tensor {} is missing", file.path().string(), name);
  const Tensor ids = file.read(name);
  check_input(ids.dtype() == DType::i32 && ids.rank() == 1,
              "{}: tensor {} is {} {}, but must be a list of I32", file.path().string(), name,
              name_of(ids.dtype()), ids.shape());
  return ids.to_vector<int32_t>();
}

}  // namespace

PromptCacheKey prompt_cache_key(const nn::GPT& model, const CacheSpec& spec, DType activations,
                                std::string_view weights) {
  configs::Config config;
  config.model = model.config();
  std::string all =
      configs::to_yaml(config) + std::string(weights) + std::string(name_of(activations));
  for (const auto& [name, value] : nn::parameter_tensors(model)) {
    const Tensor host = value.to(kCpu);
    all += name + text::content_hash({static_cast<const char*>(host.raw()), host.nbytes()});
  }
  CacheSpec named = spec;
  const configs::KVTypes types = spec.types(activations);
  named.k = types.k;
  named.v = types.v;
  named.place = Place::memory;  // where the blocks were is all one
  return {text::content_hash(all), to_string(named)};
}

PromptCacheFile::PromptCacheFile(const std::filesystem::path& path, const PromptCacheKey& key)
    : file_(path) {
  const auto value = [this](const char* name) {
    const auto found = file_.metadata().find(name);
    return found == file_.metadata().end() ? std::string() : found->second;
  };
  check_input(value("format") == kFormat, "{} is no prompt cache: its format is \"{}\", not \"{}\"",
              path.string(), value("format"), kFormat);
  check_input(value("model") == key.model,
              "{} was computed with other weights, or a model otherwise set up", path.string());
  check_input(value("cache") == key.cache, "{} holds a cache {}, and this one is {}", path.string(),
              value("cache"), key.cache);
  tokens_ = read_ids(file_, kTokens);
}

int64_t PromptCacheFile::load(BlockCache& cache, int64_t sequence,
                              std::span<const int32_t> prompt) const {
  const int64_t length = std::min(common_beginning(prompt, tokens_), std::ssize(prompt) - 1);
  const auto reads_alike = [&](int64_t layer) {  // until one of two windows drops a key
    const kernels::AttentionMask now = cache.mask(layer);
    const auto then = file_.metadata().find(layer_name(layer, "mask"));
    const auto shows_all = [length](int64_t window) { return window == 0 || length <= window; };
    return then != file_.metadata().end() &&
           (then->second == mask_text(now) ||
            (shows_all(now.window) && shows_all(std::strtoll(then->second.c_str(), nullptr, 10))));
  };
  std::vector<StoredLayer> layers;
  for (int64_t layer = 0; layer < cache.layers(); ++layer) {
    layers.push_back({read_starts(layer), {}});
    if (length == 0 || !reads_alike(layer) ||
        !cache.can_restore(layer, length, layers.back().starts)) {
      return 0;
    }
  }
  for (const auto& [name, info] : file_.tensors()) {
    if (const auto dot = name.rfind('.');
        name.starts_with("layers.") && !name.ends_with(".starts")) {
      const auto layer = static_cast<size_t>(std::strtoll(name.c_str() + 7, nullptr, 10));
      check_input(layer < layers.size(), "{}: tensor {} is of no layer", file_.path().string(),
                  name);
      layers[layer].parts.emplace_back(name.substr(dot + 1), file_.read(name));
    }
  }
  cache.restore(sequence, length, layers, std::ssize(tokens_));
  return length;
}

std::vector<int64_t> PromptCacheFile::read_starts(int64_t layer) const {
  const std::string name = layer_name(layer, "starts");
  const std::vector<int32_t> ids = read_ids(file_, name);
  for (size_t i = 0; i < ids.size(); ++i) {
    check_input(ids[i] % kernels::KVView::kBlock == 0 && ids[i] >= 0 &&
                    ids[i] < std::ssize(tokens_) && (i == 0 || ids[i] > ids[i - 1]),
                "{}: {}[{}] is {}: no block of {} tokens begins there", file_.path().string(), name,
                i, ids[i], tokens_.size());
  }
  return {ids.begin(), ids.end()};
}

void save_prompt_cache(const std::filesystem::path& path, const PromptCacheKey& key,
                       BlockCache& cache, int64_t sequence, std::span<const int32_t> tokens) {
  check(cache.position(sequence) == std::ssize(tokens),
        "[cache] sequence {} has {} tokens: not the {} to be saved", sequence,
        cache.position(sequence), tokens.size());
  std::map<std::string, std::string> metadata = {
      {"format", kFormat}, {"model", key.model}, {"cache", key.cache}};
  std::vector<std::pair<std::string, Tensor>> tensors = {
      {kTokens, Tensor::from(tokens, {std::ssize(tokens)})}};
  for (int64_t layer = 0; layer < cache.layers(); ++layer) {
    metadata[layer_name(layer, "mask")] = mask_text(cache.mask(layer));
    const StoredLayer stored = cache.stored(layer, sequence);
    const std::vector<int32_t> starts(stored.starts.begin(), stored.starts.end());
    tensors.emplace_back(layer_name(layer, "starts"), Tensor::from(starts, {std::ssize(starts)}));
    for (const auto& [name, rows] : stored.parts) {
      tensors.emplace_back(layer_name(layer, name), rows);
    }
  }
  write_safetensors(path, tensors, metadata);
}

}  // namespace headroom::infer
