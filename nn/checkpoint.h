// Weights on disk: a GPT's parameters as the named tensors of a safetensors file. Names are those
// of Hugging Face's Llama, so checkpoints travel both ways.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/gpt.h"
#include "tensor/safetensors.h"

namespace headroom::nn {

/// What names of an optimizer's tensors begin with, which lie beside the parameters.
inline constexpr std::string_view kOptimizerPrefix = "optimizer.";

/// The parameters by name, sharing their memory. A tied matrix appears once, as the embedding.
std::vector<std::pair<std::string, Tensor>> parameter_tensors(const GPT& model);

/// Overwrites every parameter with the file's. Tensors named "optimizer.*" are not parameters;
/// every other tensor must have its place in the model and every parameter its tensor, or nothing
/// is loaded. F64, F32, BF16 and F16 are converted to the model's type, which one sentence in
/// `notes` says. A tied model accepts a file that has the matrix under the embedding's name, under
/// the head's, or equal under both. Throws InputError: where shapes differ it begins with the model
/// settings that do ("n_kv_head is 8 in the checkpoint and 4 in the config"); a number too large
/// for the model's type is refused.
void load_parameters(GPT& model, const SafetensorsFile& file, std::vector<std::string>& notes);

/// The name of the first parameter that holds a NaN or an infinity; empty when none does.
std::string first_non_finite(const GPT& model);

}  // namespace headroom::nn
