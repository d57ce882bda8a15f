// A mismatch is one wrong setting far more often than many wrong tensors, so the settings that the
// file's shapes reveal are compared first.
#include "nn/checkpoint_fit.h"

#include <algorithm>
#include <vector>

#include "configs/config.h"
#include "nn/checkpoint.h"

namespace headroom::nn {

namespace {

constexpr const char* kFirstLayer = "model.layers.0.";
constexpr const char* kLatent = "self_attn.kv_a_proj_with_mqa.weight";
constexpr size_t kNamed = 3;  // tensors that a message names; the others are counted

/// What the shapes of a file say about the model they are for.
class Settings {
 public:
  Settings(const SafetensorsFile& file, const GPT& model) : file_(file), model_(model) {}

  /// One sentence part per setting that differs, the widest-reaching first.
  std::vector<std::string> differing() {
    const configs::ModelConfig& config = model_.config();
    compare("n_layer", layers(), config.n_layer);
    compare("n_embd", size(embedding(), 1), config.n_embd);
    compare("vocab_size", size(embedding(), 0), model_.vocab_size());
    const bool latent = file_.has(in_layer(kLatent));
    compare_choice("attention", in_layer(kLatent), "mla", "gqa", config.mla());
    if (latent && config.mla()) {
      compare_latent_heads();
    } else if (!latent && !config.mla()) {
      compare_heads();
    }
    compare("n_ff", size(in_layer("mlp.up_proj.weight"), 0), config.n_ff());
    if (config.position == configs::Position::learned) {
      compare("block_size", size("model.embed_positions.weight", 0), config.block_size);
    }
    compare_choice("position", "model.embed_positions.weight", "learned", "rope",
                   config.position == configs::Position::learned);
    compare_choice("mlp", in_layer("mlp.gate_proj.weight"), "swiglu", "without a gate",
                   config.mlp == configs::MlpKind::swiglu);
    compare_choice("sink", in_layer("self_attn.sinks"), "learned", "none",
                   config.sink == configs::SinkKind::learned);
    compare_choice("qk_norm", in_layer("self_attn.q_norm.weight"), "true", "false", config.qk_norm);
    compare_choice("bias", in_layer("self_attn.q_proj.bias"), "all", "not all",
                   config.linear_bias());
    compare_choice("norm with bias", "model.norm.bias", "true", "false", config.norm_bias());
    return std::move(differing_);
  }

 private:
  static std::string in_layer(const std::string& name) { return kFirstLayer + name; }
  std::string embedding() const { return file_.has(kEmbeddingName) ? kEmbeddingName : kHeadName; }

  /// Size of an axis of a tensor; 0 where the file has no such tensor or axis.
  int64_t size(const std::string& name, int axis) const {
    const auto found = file_.tensors().find(name);
    return found != file_.tensors().end() && found->second.shape.rank() > axis
               ? found->second.shape.dim(axis)
               : 0;
  }

  int64_t layers() const {
    int64_t count = 0;
    while (size(fmt::format("model.layers.{}.self_attn.q_proj.weight", count), 0) > 0) {
      ++count;
    }
    return count;
  }

  void compare_heads() {
    const configs::ModelConfig& config = model_.config();
    const int64_t head_dim = file_head_dim();
    compare("n_head", size(in_layer("self_attn.q_proj.weight"), 0) / head_dim, config.n_head);
    compare("n_kv_head", size(in_layer("self_attn.k_proj.weight"), 0) / head_dim, config.n_kv_head);
    compare("head_dim", head_dim, config.head_dim());
  }

  /// The queries are n_head (head_dim + rope_head_dim) wide and the outputs n_head head_dim.
  /// Without rope they are equally wide, and the number of heads stays open.
  void compare_latent_heads() {
    const configs::ModelConfig& config = model_.config();
    const int64_t rank = size(in_layer("self_attn.kv_a_layernorm.weight"), 0);
    const int64_t rotated = size(in_layer(kLatent), 0) - rank;
    const int64_t outputs = size(in_layer("self_attn.o_proj.weight"), 1);
    const int64_t queries = size(in_layer("self_attn.q_proj.weight"), 0);
    compare("kv_rank", rank, config.kv_rank());
    compare("rope_head_dim", rotated, config.rope_head_dim());
    const int64_t heads = rotated > 0 ? (queries - outputs) / rotated : config.n_head;
    compare("n_head", heads, config.n_head);
    compare("head_dim", heads > 0 ? outputs / heads : 0, config.head_dim());
  }

  /// The norm of the queries gives it away; else it is what the config says, or what the config's
  /// rule makes of the file's width.
  int64_t file_head_dim() const {
    const configs::ModelConfig& config = model_.config();
    const int64_t normed = size(in_layer("self_attn.q_norm.weight"), 0);
    const int64_t derived =
        config.given_head_dim != 0 ? config.given_head_dim : size(embedding(), 1) / config.n_head;
    return std::max<int64_t>(1, normed != 0 ? normed : derived);
  }

  void compare(const char* key, int64_t in_file, int64_t in_config) {
    if (in_file != 0 && in_file != in_config) {
      differing_.push_back(
          fmt::format("{} is {} in the checkpoint and {} in the config", key, in_file, in_config));
    }
  }

  void compare_choice(const char* key, const std::string& tensor, const char* with,
                      const char* without, bool in_config) {
    if (file_.has(tensor) != in_config) {
      differing_.push_back(fmt::format("{} is {} in the checkpoint and {} in the config", key,
                                       in_config ? without : with, in_config ? with : without));
    }
  }

  const SafetensorsFile& file_;
  const GPT& model_;
  std::vector<std::string> differing_;
};

/// "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamed);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

/// What keeps the file from fitting, tensor by tensor.
struct Mismatch {
  std::vector<std::string> wrong_shape, missing, surplus;
  bool any() const { return !wrong_shape.empty() || !missing.empty() || !surplus.empty(); }

  std::string text() const {
    std::vector<std::string> parts;
    const auto part = [&parts](const std::vector<std::string>& names, const char* what) {
      if (!names.empty()) {
        parts.push_back(fmt::format("{} {} {}: {}", names.size(),
                                    names.size() == 1 ? "tensor" : "tensors", what, listed(names)));
      }
    };
    part(wrong_shape, "of another shape");
    part(missing, "missing in the file");
    part(surplus, "with no place in the model");
    return fmt::format("{}", fmt::join(parts, "; "));
  }
};

/// The names under which a tied matrix or an untied pair lies in the file.
std::string name_in_file(const std::string& parameter, const GPT& model,
                         const SafetensorsFile& file) {
  const bool tied = model.config().tie_embeddings;
  if (tied && parameter == kEmbeddingName && !file.has(kEmbeddingName) && file.has(kHeadName)) {
    return kHeadName;
  }
  check_input(tied || file.has(kEmbeddingName) == file.has(kHeadName) ||
                  (parameter != kEmbeddingName && parameter != kHeadName),
              "{}: holds {} but not {}, one matrix for the embedding and the head: "
              "model.tie_embeddings must be true for it",
              file.path().string(), file.has(kHeadName) ? kHeadName : kEmbeddingName,
              file.has(kHeadName) ? kEmbeddingName : kHeadName);
  return parameter;
}

}  // namespace

std::map<std::string, std::string> match_tensors(const GPT& model, const SafetensorsFile& file) {
  std::map<std::string, std::string> names;
  std::map<std::string, bool> used;
  Mismatch mismatch;
  for (const Parameter& p : model.parameters()) {
    const std::string name = name_in_file(p.name, model, file);
    used[name] = true;
    if (!file.has(name)) {
      mismatch.missing.push_back(name);
      continue;
    }
    const SafetensorsInfo& info = file.tensors().at(name);
    check_input(is_floating(info.dtype),
                "{}: {} is stored as {}: weights are stored as F64, F32, BF16 or F16",
                file.path().string(), name, name_of(info.dtype));
    if (!(info.shape == p.value.shape())) {
      mismatch.wrong_shape.push_back(
          fmt::format("{} is {}, the model needs {}", name, info.shape, p.value.shape()));
    }
    names[p.name] = name;
  }
  for (const auto& [name, info] : file.tensors()) {
    // A tied model's second copy is compared with the first when the values are read.
    const bool second_copy = model.config().tie_embeddings && name == kHeadName;
    if (!used.contains(name) && !name.starts_with(kOptimizerPrefix) && !second_copy) {
      mismatch.surplus.push_back(name);
    }
  }
  if (mismatch.any()) {
    const std::vector<std::string> settings = Settings(file, model).differing();
    throw InputError(fmt::format("{}: does not fit the config: {}{}{}", file.path().string(),
                                 fmt::join(settings, "; "), settings.empty() ? "" : "; ",
                                 mismatch.text()));
  }
  return names;
}

}  // namespace headroom::nn
