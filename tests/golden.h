// The reference values in tests/golden, computed with PyTorch in float64 and stored as float32.
// A tensor of an operator's case is named "case/in.x", "case/out.y", "case/dout.y" or
// "case/grad.x"; the small GPTs' files use the same form ("param/tok_emb", "grad/tok_emb") and
// plain names ("logits").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/safetensors.h"

namespace headroom::testing {

class Golden {
 public:
  /// `file` is a name in tests/golden.
  explicit Golden(const std::string& file);

  /// The cases whose names begin with `prefix`, sorted.
  std::vector<std::string> cases(std::string_view prefix = "") const;
  /// The names of a case's tensors, without "case/", sorted.
  std::vector<std::string> names(const std::string& group) const;
  bool has(const std::string& group, const std::string& name) const;
  /// Real numbers arrive as `type`, f64 or f32; integers stay i32. An empty group means a plain
  /// name.
  Tensor tensor(const std::string& group, const std::string& name, DType type = DType::f64) const;

  /// A case's arguments: all (include nlohmann/json.hpp to use them), or one by its key.
  nlohmann::json arguments(const std::string& group) const;
  double number(const std::string& group, const std::string& key) const;
  std::string text(const std::string& group, const std::string& key) const;

 private:
  SafetensorsFile file_;
};

/// max |a - b| / max |b|; infinite when either holds a NaN or an infinity, and where b is all zero
/// and a is not. Throws Error when the shapes differ.
double max_relative_error(const Tensor& a, const Tensor& b);

}  // namespace headroom::testing
