// The four small GPTs of tests/golden as models of ours: their shapes, and the table of parameter
// names.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "golden.h"
#include "nn/gpt.h"

namespace headroom::testing {

/// "mha_learned_layernorm_gelu", ...
const std::vector<std::string>& golden_gpt_tags();

struct GoldenGPT {
  explicit GoldenGPT(const std::string& tag, DType type);

  Golden file;
  configs::ModelConfig config;
  std::unique_ptr<nn::GPT> model;  // with the stored weights
  /// Our parameter name to the file's: "model.layers.0.self_attn.q_proj.weight" to
  /// "blocks.0.attn.w_q".
  static std::string file_name(const std::string& parameter);
  /// Inputs and targets (B, T) of training step s.
  std::pair<Tensor, Tensor> batch(int64_t step) const;
};

}  // namespace headroom::testing
