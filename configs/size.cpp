// The formulas for the size of a model.
#include "configs/size.h"

#include <algorithm>

#include "configs/count.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

using List = std::vector<ParameterSize>;

constexpr int64_t kMostListed = 1'000'000;

void add_norm(List& list, const std::string& name, const ModelConfig& m) {
  list.push_back({name + ".weight", {m.n_embd}});
  if (m.norm_bias()) {
    list.push_back({name + ".bias", {m.n_embd}});
  }
}

void add_linear(List& list, const std::string& name, int64_t out, int64_t in,
                const ModelConfig& m) {
  list.push_back({name + ".weight", {out, in}});
  if (m.linear_bias()) {
    list.push_back({name + ".bias", {out}});
  }
}

Count total(const List& list) {
  Count sum;
  for (const ParameterSize& each : list) {
    sum += each.count();
  }
  return sum;
}

/// Elements of the matrices in one block: what Muon steps, and what a token is multiplied with.
Count layer_matrix_elements(const ModelConfig& model) {
  Count sum;
  for (const ParameterSize& each : layer_parameters(model, 0)) {
    sum += each.shape.size() == 2 ? each.count() : 0;
  }
  return sum;
}

/// The projections and norms of latent attention, in the order of the forward pass.
void add_latent_attention(List& list, const std::string& attention, const ModelConfig& m) {
  const int64_t query = m.head_dim() + m.rope_head_dim();
  add_linear(list, attention + "q_proj", m.n_head * query, m.n_embd, m);
  add_linear(list, attention + "kv_a_proj_with_mqa", m.kv_rank() + m.rope_head_dim(), m.n_embd, m);
  if (m.qk_norm) {
    list.push_back({attention + "q_norm.weight", {query}});
    if (m.rope_head_dim() > 0) {
      list.push_back({attention + "k_norm.weight", {m.rope_head_dim()}});
    }
  }
  list.push_back({attention + "kv_a_layernorm.weight", {m.kv_rank()}});
  list.push_back({attention + "k_b_proj.weight", {m.q_dim(), m.kv_rank()}});
  list.push_back({attention + "v_b_proj.weight", {m.q_dim(), m.kv_rank()}});
}

void add_grouped_attention(List& list, const std::string& attention, const ModelConfig& m) {
  add_linear(list, attention + "q_proj", m.q_dim(), m.n_embd, m);
  add_linear(list, attention + "k_proj", m.kv_dim(), m.n_embd, m);
  add_linear(list, attention + "v_proj", m.kv_dim(), m.n_embd, m);
  if (m.qk_norm) {
    list.push_back({attention + "q_norm.weight", {m.head_dim()}});
    list.push_back({attention + "k_norm.weight", {m.head_dim()}});
  }
}

/// The most keys a query of a local layer sees.
Count local_reach(const ModelConfig& m) { return Count(m.window) + m.sinks; }

/// Multiply-adds of one query of all heads with one key and value.
Count per_key(const ModelConfig& m) {
  const KVShape kv = kv_shape(m);
  return Count(m.n_head) * (Count(kv.key_size) + kv.value_size);
}

/// Keys that the queries at 0 .. tokens - 1 see in all, when none sees more than `reach`.
Count keys_of_sequence(int64_t tokens, int64_t reach) {
  const int64_t grows = std::min(tokens, reach);
  return (Count(grows) * (Count(grows) + 1)).value() / 2 + Count(tokens - grows) * reach;
}

}  // namespace

int64_t ParameterSize::count() const {
  Count product = 1;
  for (const int64_t dim : shape) {
    product = product * dim;
  }
  return product.value();
}

List layer_parameters(const ModelConfig& m, int64_t layer) {
  const std::string block = fmt::format("model.layers.{}.", layer);
  const std::string attention = block + "self_attn.";
  List list;
  add_norm(list, block + "input_layernorm", m);
  if (m.sink == SinkKind::learned) {
    list.push_back({attention + "sinks", {m.n_head}});
  }
  if (m.mla()) {
    add_latent_attention(list, attention, m);
  } else {
    add_grouped_attention(list, attention, m);
  }
  add_linear(list, attention + "o_proj", m.n_embd, m.q_dim(), m);
  add_norm(list, block + "post_attention_layernorm", m);
  if (m.mlp == MlpKind::swiglu) {
    add_linear(list, block + "mlp.gate_proj", m.n_ff(), m.n_embd, m);
  }
  add_linear(list, block + "mlp.up_proj", m.n_ff(), m.n_embd, m);
  add_linear(list, block + "mlp.down_proj", m.n_embd, m.n_ff(), m);
  return list;
}

List outer_parameters(const ModelConfig& m, int64_t vocab_size) {
  List list = {{"model.embed_tokens.weight", {vocab_size, m.n_embd}}};
  if (m.position == Position::learned) {
    list.push_back({"model.embed_positions.weight", {m.block_size, m.n_embd}});
  }
  add_norm(list, "model.norm", m);
  if (!m.tie_embeddings) {
    list.push_back({"lm_head.weight", {vocab_size, m.n_embd}});
  }
  return list;
}

List parameters(const ModelConfig& m, int64_t vocab_size) {
  check_input(m.n_layer <= kMostListed,
              "[size] the parameters of {} blocks are too many to list: at most {}", m.n_layer,
              kMostListed);
  const List outer = outer_parameters(m, vocab_size);
  const auto after_blocks = outer.begin() + (m.position == Position::learned ? 2 : 1);
  List list(outer.begin(), after_blocks);
  for (int64_t layer = 0; layer < m.n_layer; ++layer) {
    const List block = layer_parameters(m, layer);
    list.insert(list.end(), block.begin(), block.end());
  }
  list.insert(list.end(), after_blocks, outer.end());
  return list;
}

int64_t parameter_count(const ModelConfig& m, int64_t vocab_size) {
  return (total(outer_parameters(m, vocab_size)) + total(layer_parameters(m, 0)) * m.n_layer)
      .value();
}

KVShape kv_shape(const ModelConfig& m) {
  if (m.mla()) {
    return {1, m.kv_rank() + m.rope_head_dim(), m.kv_rank(), true};
  }
  return {m.n_kv_head, m.head_dim(), m.head_dim(), false};
}

LayerWindow layer_window(const ModelConfig& m, int64_t layer) {
  const auto letter = static_cast<size_t>(layer) % m.window_pattern.size();
  return m.window_pattern[letter] == 'L' ? LayerWindow{m.window, m.sinks} : LayerWindow{};
}

int64_t local_layers(const ModelConfig& m) {
  if (m.window == 0) {
    return 0;
  }
  const auto period = static_cast<int64_t>(m.window_pattern.size());
  const auto locals = [&m](int64_t letters) {
    return std::count(m.window_pattern.begin(), m.window_pattern.begin() + letters, 'L');
  };
  return m.n_layer / period * locals(period) + locals(m.n_layer % period);
}

int64_t attention_parameters_per_layer(const ModelConfig& m) {
  Count sum;
  for (const ParameterSize& each : layer_parameters(m, 0)) {
    if (each.name.find(".self_attn.") != std::string::npos &&
        each.name.find("_proj") != std::string::npos) {
      sum += each.count();
    }
  }
  return sum.value();
}

KVTypes kv_types_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {KVType::f64, KVType::f64};
    case DType::f32:
      return {KVType::f32, KVType::f32};
    case DType::bf16:
      return {KVType::bf16, KVType::bf16};
    case DType::f16:
      return {KVType::f16, KVType::f16};
    default:
      throw Error(fmt::format("[size] {} is no floating type", name_of(dtype)));
  }
}

std::string to_string(const KVTypes& types) {
  return types.k == types.v ? std::string(name_of(types.k))
                            : fmt::format("k {}, v {}", name_of(types.k), name_of(types.v));
}

namespace {

/// Bytes of an element; 0 for a coded type.
int64_t element_bytes(KVType type) {
  switch (type) {
    case KVType::f64:
      return 8;
    case KVType::f32:
      return 4;
    case KVType::bf16:
    case KVType::f16:
      return 2;
    case KVType::int8:
    case KVType::int4:
      return 0;
  }
  throw Error("[size] a type that the cache does not know");
}

/// "head_dim 32 * bytes 4", or "(32 + 2 * 1)": numbers and scales.
std::string vector_formula(KVType type, const std::string& name, int64_t width) {
  const int64_t groups = (width + 31) / 32;
  switch (type) {
    case KVType::int8:
      return fmt::format("({} {} + scales 2 * {})", name, width, groups);
    case KVType::int4:
      return fmt::format("({} {} / 2 + scales 2 * {})", name, width, groups);
    default:
      return fmt::format("{} {} * bytes {}", name, width, element_bytes(type));
  }
}

}  // namespace

int64_t kv_vector_bytes(KVType type, int64_t width) {
  const Count scales = Count((width + 31) / 32) * 2;
  switch (type) {
    case KVType::int8:
      return (Count(width) + scales).value();
    case KVType::int4:
      return (Count((width + 1) / 2) + scales).value();
    default:
      return (Count(width) * element_bytes(type)).value();
  }
}

int64_t cache_bytes_per_token(const ModelConfig& m, KVTypes types) {
  const KVShape shape = kv_shape(m);
  Count vectors = kv_vector_bytes(types.k, shape.key_size);
  if (!shape.value_in_key) {
    vectors += kv_vector_bytes(types.v, shape.value_size);
  }
  return (vectors * shape.heads).value();
}

int64_t mean_cache_bytes_per_token(const ModelConfig& m, KVTypes types) {
  const int64_t local = local_layers(m);
  const Count tokens = Count(m.n_layer - local) * m.block_size +
                       Count(local) * std::min(m.block_size, local_reach(m).value());
  return (tokens * cache_bytes_per_token(m, types)).value() / m.block_size;
}

int64_t cache_bytes(const ModelConfig& m, int64_t tokens, int64_t batch, KVTypes types) {
  return (Count(cache_bytes_per_token(m, types)) * m.n_layer * tokens * batch).value();
}

std::string token_formula(const ModelConfig& m, KVTypes types) {
  const KVShape shape = kv_shape(m);
  if (shape.value_in_key) {
    return vector_formula(types.k, "(kv_rank + rope_head_dim)", shape.key_size);
  }
  const std::string heads = fmt::format("n_kv_head {} * ", shape.heads);
  if (types.k == types.v) {
    return "2 * " + heads + vector_formula(types.k, "head_dim", shape.key_size);
  }
  return heads + fmt::format("({} + {})", vector_formula(types.k, "head_dim", shape.key_size),
                             vector_formula(types.v, "head_dim", shape.value_size));
}

std::string cache_formula(const ModelConfig& m, int64_t tokens, int64_t batch, KVTypes types) {
  const int64_t bytes = cache_bytes(m, tokens, batch, types);
  const std::string sum =
      Count(bytes).saturated() ? human_bytes(bytes) : fmt::format("{} bytes", bytes);
  const KVShape shape = kv_shape(m);
  if (types.k == types.v && element_bytes(types.k) > 0 && !shape.value_in_key) {
    return fmt::format(
        "2 * n_layer {} * n_kv_head {} * head_dim {} * tokens {} * batch {} * bytes {} = {}",
        m.n_layer, shape.heads, shape.key_size, tokens, batch, element_bytes(types.k), sum);
  }
  return fmt::format("n_layer {} * {} * tokens {} * batch {} = {}", m.n_layer,
                     token_formula(m, types), tokens, batch, sum);
}

int64_t weights_bytes(const ModelConfig& m, int64_t vocab_size) {
  return (Count(4) * parameter_count(m, vocab_size)).value();
}

int64_t optimizer_bytes(const ModelConfig& m, int64_t vocab_size, OptimizerKind optimizer) {
  if (optimizer == OptimizerKind::adamw) {
    return (Count(8) * parameter_count(m, vocab_size)).value();
  }
  Count per_layer;
  for (const ParameterSize& each : layer_parameters(m, 0)) {
    per_layer += Count(each.shape.size() == 2 ? 4 : 8) * each.count();
  }
  return (per_layer * m.n_layer + Count(8) * total(outer_parameters(m, vocab_size))).value();
}

namespace {

/// Elements per token that the tape holds for attention, between the norm before it and the sum
/// after it.
Count attention_elements(const ModelConfig& m) {
  if (!m.mla()) {
    return (Count(m.n_head) + m.n_kv_head) * m.head_dim() * (m.qk_norm ? 3 : 2);
  }
  const Count rotated = m.rope_head_dim(), rank = m.kv_rank();
  const Count per_head = Count(2) * m.head_dim() + rotated + Count(3) * rank;
  const Count normed = (Count(m.n_head) * (rotated + m.head_dim()) + rotated) * (m.qk_norm ? 1 : 0);
  return per_head * m.n_head + Count(3) * rank + rotated + normed;
}

}  // namespace

int64_t activation_bytes(const ModelConfig& m, int64_t vocab_size, int64_t tokens, int64_t batch,
                         int64_t bytes_per_element) {
  const Count inner = Count(m.mlp == MlpKind::swiglu ? 3 : 2) * m.n_ff();
  const Count elements = Count(4) * m.n_embd + attention_elements(m) + inner;
  const Count scalars = Count(m.n_head) + (m.norm == Norm::layernorm ? 4 : 2);
  const Count layer = elements * bytes_per_element + scalars * 4;
  const Count once = (Count(3 + 4) * m.n_embd + Count(2) * m.n_ff()) * bytes_per_element;
  const Count all_tokens = Count(tokens) * batch;
  const Count logit_rows = std::min(all_tokens.value(), head_rows(vocab_size));
  return (all_tokens * (layer * m.n_layer + once) + logit_rows * vocab_size * 4 * 2).value();
}

int64_t head_rows(int64_t vocab_size) {
  return std::clamp<int64_t>((int64_t{1} << 22) / std::max<int64_t>(1, vocab_size), 64, 4096);
}

int64_t tokens_per_step(const Config& config) {
  return (Count(config.train.batch_size) * config.train.grad_accumulation * config.model.block_size)
      .value();
}

int64_t attention_multiply_adds(const ModelConfig& m, int64_t tokens) {
  const int64_t local = local_layers(m);
  return (per_key(m) * (keys_of_sequence(tokens, tokens) * (m.n_layer - local) +
                        keys_of_sequence(tokens, local_reach(m).value()) * local))
      .value();
}

int64_t step_flop(const ModelConfig& m, int64_t vocab_size, int64_t tokens) {
  const Count matrices = layer_matrix_elements(m) * m.n_layer + Count(vocab_size) * m.n_embd;
  const Count sequence = attention_multiply_adds(m, m.block_size);
  const Count attention = sequence * (tokens / m.block_size) +
                          (sequence * (tokens % m.block_size)).value() / m.block_size;
  return (Count(6) * (matrices * tokens + attention)).value();
}

int64_t prefill_flop(const ModelConfig& m, int64_t vocab_size, int64_t tokens) {
  const Count layers = layer_matrix_elements(m) * m.n_layer * tokens;
  return (Count(2) * (layers + Count(vocab_size) * m.n_embd + attention_multiply_adds(m, tokens)))
      .value();
}

int64_t decode_flop(const ModelConfig& m, int64_t vocab_size, int64_t context) {
  const Count matrices = layer_matrix_elements(m) * m.n_layer + Count(vocab_size) * m.n_embd;
  const int64_t local = local_layers(m);
  const Count keys = Count(context) * (m.n_layer - local) +
                     Count(std::min(context, local_reach(m).value())) * local;
  return (Count(2) * (matrices + per_key(m) * keys)).value();
}

}  // namespace headroom::configs
