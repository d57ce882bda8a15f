// Parts of the safetensors format that its reader and its writer share.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/safetensors.h"

namespace headroom::safetensors {

inline constexpr std::string_view kMetadata = "__metadata__";

/// The format's names of the element types.
inline constexpr std::array<std::pair<std::string_view, DType>, 6> kFileTypes = {{
    {"F64", DType::f64},
    {"F32", DType::f32},
    {"BF16", DType::bf16},
    {"F16", DType::f16},
    {"I8", DType::i8},
    {"I32", DType::i32},
}};

/// A name for a message: as JSON, so that control characters are visible, and cut when it is long.
std::string in_quotes(std::string_view name);

/// Fills `metadata` and `tensors` from the JSON text of a header. Throws InputError, which names
/// `file`, unless every field is valid and the tensors fill the `data_size` bytes of data without
/// gap or overlap.
void parse_header(const std::string& file, const std::string& text, uint64_t data_size,
                  std::map<std::string, std::string>& metadata,
                  std::map<std::string, SafetensorsInfo>& tensors);

}  // namespace headroom::safetensors
