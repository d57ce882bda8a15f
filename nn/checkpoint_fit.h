// Whether the tensors of a file are those of a model, and what to say when they are not.
#pragma once

#include <map>
#include <string>

#include "nn/gpt.h"
#include "tensor/safetensors.h"

namespace headroom::nn {

inline constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
inline constexpr const char* kHeadName = "lm_head.weight";

/// For each parameter of the model the name of its tensor in the file. Throws InputError unless the
/// file's tensors, but for "optimizer.*", are exactly the model's in name, shape and a floating
/// type.
std::map<std::string, std::string> match_tensors(const GPT& model, const SafetensorsFile& file);

}  // namespace headroom::nn
