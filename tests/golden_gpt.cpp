#include "golden_gpt.h"

#include <map>
#include <nlohmann/json.hpp>

#include "tests/test_device.h"

namespace headroom::testing {

const std::vector<std::string>& golden_gpt_tags() {
  static const std::vector<std::string> tags{"mha_learned_layernorm_gelu",
                                             "gqa_rope_rmsnorm_swiglu", "mqa_rope_rmsnorm_gelu",
                                             "mha_rope_layernorm_swiglu"};
  return tags;
}

std::string GoldenGPT::file_name(const std::string& parameter) {
  static const std::map<std::string, std::string> outer{{"model.embed_tokens.weight", "tok_emb"},
                                                        {"model.embed_positions.weight", "pos_emb"},
                                                        {"model.norm.weight", "norm.w"},
                                                        {"model.norm.bias", "norm.b"}};
  static const std::map<std::string, std::string> inner{
      {"input_layernorm.weight", "norm1.w"},          {"input_layernorm.bias", "norm1.b"},
      {"self_attn.q_proj.weight", "attn.w_q"},        {"self_attn.k_proj.weight", "attn.w_k"},
      {"self_attn.v_proj.weight", "attn.w_v"},        {"self_attn.o_proj.weight", "attn.w_o"},
      {"post_attention_layernorm.weight", "norm2.w"}, {"post_attention_layernorm.bias", "norm2.b"},
      {"mlp.gate_proj.weight", "mlp.w_gate"},         {"mlp.up_proj.weight", "mlp.w_up"},
      {"mlp.down_proj.weight", "mlp.w_down"}};
  if (const auto it = outer.find(parameter); it != outer.end()) {
    return it->second;
  }
  const std::string prefix = "model.layers.";
  const size_t dot = parameter.find('.', prefix.size());
  return "blocks." + parameter.substr(prefix.size(), dot - prefix.size()) + "." +
         inner.at(parameter.substr(dot + 1));
}

GoldenGPT::GoldenGPT(const std::string& tag, DType type) : file("gpt_" + tag + ".safetensors") {
  const nlohmann::json shape = file.arguments("config");
  config.n_layer = shape.at("L");
  config.n_embd = shape.at("C");
  config.n_head = shape.at("H");
  config.n_kv_head = shape.at("Hkv");
  config.block_size = shape.at("T");
  config.given_n_ff = shape.at("F_");
  const std::string position = shape.at("pos");
  config.position = position == "learned" ? configs::Position::learned : configs::Position::rope;
  config.rope_style =
      position == "rope_half" ? configs::RopeStyle::half : configs::RopeStyle::interleaved;
  config.norm = shape.at("norm") == "layernorm" ? configs::Norm::layernorm : configs::Norm::rmsnorm;
  config.norm_eps = config.norm == configs::Norm::layernorm ? 1e-5 : 1e-6;
  config.bias = configs::Bias::norm;
  config.mlp = shape.at("mlp") == "swiglu" ? configs::MlpKind::swiglu : configs::MlpKind::gelu;
  model =
      std::make_unique<nn::GPT>(config, shape.at("V").get<int64_t>(),
                                nn::Scope{.dtype = type, .device = test_device(), .draw = false});
  for (const nn::Parameter& p : model->parameters()) {
    Tensor(p.value.value()).copy_from(file.tensor("param", file_name(p.name), type));
  }
}

std::pair<Tensor, Tensor> GoldenGPT::batch(int64_t step) const {
  const Tensor ids = file.tensor("", "ids");  // (steps, B, T + 1)
  const int64_t B = ids.dim(1), T = ids.dim(2) - 1;
  std::vector<int32_t> inputs, targets;
  for (int64_t b = 0; b < B; ++b) {
    const int32_t* row = ids.data<int32_t>() + (step * B + b) * (T + 1);
    inputs.insert(inputs.end(), row, row + T);
    targets.insert(targets.end(), row + 1, row + T + 1);
  }
  return {Tensor::from(inputs, {B, T}), Tensor::from(targets, {B, T})};
}

}  // namespace headroom::testing
