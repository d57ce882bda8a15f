// Making the list of reliefs: architectures times storage types, windows, a file.
#include "experiments/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "experiments/kv_bits.h"

namespace headroom::experiments {
namespace {

using configs::KVType;
using configs::KVTypes;
using configs::ModelConfig;

/// StreamingLLM's number of first keys (arXiv 2309.17453).
constexpr int64_t kSinks = 4;

/// A kind of attention that the cache may belong to.
struct Variant {
  std::string name;  // empty: the model as it is
  ModelConfig model;
  std::optional<double> loss;
};

std::optional<double> find(const auto& map, const auto& key) {
  const auto at = map.find(key);
  return at == map.end() ? std::nullopt : std::optional(at->second);
}

std::optional<double> difference(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::optional(*a - *b) : std::nullopt;
}

std::optional<double> sum(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

/// The model, fewer KV heads, and latent attention.
std::vector<Variant> variants(const ModelConfig& model, const MeasuredLosses& measured) {
  std::vector<Variant> all = {{"", model, 0.0}};
  if (model.mla()) {
    return all;
  }
  const std::optional<double> now = find(measured.heads, model.n_kv_head);
  for (int64_t heads = model.n_kv_head - 1; heads >= 1; --heads) {
    if (model.n_head % heads == 0) {
      Variant fewer{fmt::format("n_kv_head {}", heads), model,
                    difference(find(measured.heads, heads), now)};
      fewer.model.n_kv_head = heads;
      all.push_back(fewer);
    }
  }
  if (model.position == configs::Position::rope) {
    Variant latent{"latent attention", model,
                   difference(find(measured.rows, std::string("mla")), now)};
    latent.model.attention = configs::AttentionKind::mla;
    latent.model.n_kv_head = model.n_head;
    latent.name += fmt::format(" (kv_rank {})", latent.model.kv_rank());
    all.push_back(latent);
  }
  return all;
}

/// The types a cache may be stored as instead of `types`: those that take less.
std::vector<KVTypes> smaller_types(const ModelConfig& model, KVTypes types) {
  std::vector<KVTypes> all = {types};
  for (const KVType type : {KVType::bf16, KVType::int8, KVType::int4}) {
    if (configs::cache_bytes_per_token(model, {type, type}) <
        configs::cache_bytes_per_token(model, types)) {
      all.push_back({type, type});
    }
  }
  return all;
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + ", " + b;
}

class List {
 public:
  List(const ModelConfig& model, const Need& need, const MeasuredLosses& measured)
      : model_(model), need_(need), measured_(measured) {}

  std::vector<RankedRelief> make() {
    for (const Variant& variant : variants(model_, measured_)) {
      for (const KVTypes types : smaller_types(variant.model, need_.types)) {
        add(variant, types, need_.context, "", 0.0, "");
        if (variant.name.empty() && model_.window == 0 && rope()) {
          add_windows(variant, types);
        }
      }
    }
    add_file();
    return std::move(reliefs_);
  }

 private:
  bool rope() const { return model_.position == configs::Position::rope; }

  std::optional<double> loss_of(const ModelConfig& model, KVTypes types) const {
    return types == need_.types ? std::optional(0.0)
           : model.mla()        ? std::nullopt
                                : find(measured_.types, bits_figure(model.n_kv_head, types));
  }

  void add(const Variant& variant, KVTypes types, int64_t tokens, const std::string& window,
           std::optional<double> window_loss, const std::string& warning) {
    const std::string stored =
        types == need_.types ? "" : fmt::format("{} cache", configs::to_string(types));
    RankedRelief relief{
        .name = joined(joined(variant.name, window), stored),
        .weights_bytes = configs::weights_bytes(variant.model, need_.vocab_size),
        .cache_bytes = configs::cache_bytes(variant.model, tokens, need_.batch, types),
        .fits = false,
        .loss = sum(sum(variant.loss, loss_of(variant.model, types)), window_loss),
        .slow = false,
        .retrains = !variant.name.empty(),
        .warning = warning};
    relief.fits = relief.total_bytes() <= need_.memory;
    if (relief.name.empty()) {
      relief.name = "as it is";
    }
    reliefs_.push_back(relief);
  }

  /// A window of what the model was trained on, with sinks and, so that it can be warned of,
  /// without.
  void add_windows(const Variant& variant, KVTypes types) {
    const int64_t window = std::min(model_.block_size, need_.context / 4);
    if (window < 1) {
      return;
    }
    add(variant, types, window + kSinks, fmt::format("window {}, {} sinks", window, kSinks),
        find(measured_.sinks, kSinks), "");
    if (types == need_.types) {
      add(variant, types, window, fmt::format("window {}, no sinks", window),
          find(measured_.sinks, int64_t{0}),
          "without sinks a model that rests attention on its first token breaks when that is "
          "dropped (published on GPT-2: loss 8.25 against 3.58)");
    }
  }

  void add_file() {
    RankedRelief file = reliefs_.front();
    file.name = "cache in a file (place=file)";
    file.cache_bytes = 0;
    file.fits = file.weights_bytes <= need_.memory;
    file.slow = true;
    file.warning = "";
    reliefs_.push_back(file);
  }

  const ModelConfig& model_;
  const Need& need_;
  const MeasuredLosses& measured_;
  std::vector<RankedRelief> reliefs_;
};

/// What the ranking compares, best first.
auto place(const RankedRelief& relief) {
  const int kind = !relief.warning.empty() ? 3 : relief.slow ? 2 : relief.loss ? 0 : 1;
  return std::tuple(!relief.fits, kind, relief.loss.value_or(0), -relief.total_bytes());
}

}  // namespace

std::vector<RankedRelief> rank_reliefs(const ModelConfig& model, const Need& need,
                                       const MeasuredLosses& measured) {
  std::vector<RankedRelief> all = List(model, need, measured).make();
  std::stable_sort(all.begin() + 1, all.end(), [](const RankedRelief& a, const RankedRelief& b) {
    return place(a) < place(b);
  });
  return all;
}

}  // namespace headroom::experiments
