// Reads everything, then overwrites the model: a file that does not fit leaves it as it was.
#include "nn/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <type_traits>

#include "nn/checkpoint_fit.h"
#include "tensor/visit.h"

namespace headroom::nn {

namespace {

/// Index of the first NaN or infinity; numel() when there is none.
int64_t first_bad(const Tensor& x) {
  return with_floats(x, [&x]<class T>(const T* values) {
    using Number = std::conditional_t<std::is_floating_point_v<T>, T, float>;
    return std::find_if(values, values + x.numel(),
                        [](T v) { return !std::isfinite(static_cast<Number>(v)); }) -
           values;
  });
}

/// The tensor in `dtype`. A finite number that becomes infinite is refused.
Tensor converted(const Tensor& stored, DType dtype, const std::string& file,
                 const std::string& name) {
  if (stored.dtype() == dtype) {
    return stored;
  }
  Tensor result = Tensor::empty(stored.shape(), dtype);
  kernels::backend(kCpu).cast(stored, result);
  const int64_t bad = first_bad(result);
  check_input(bad == result.numel() || first_bad(stored) <= bad,
              "{}: {} holds numbers too large for {}: element {}", file, name, name_of(dtype), bad);
  return result;
}

std::string conversion_note(const SafetensorsFile& file, const std::map<DType, int64_t>& counts,
                            DType model) {
  std::vector<std::string> kinds;
  kinds.reserve(counts.size());
  for (const auto& [dtype, count] : counts) {
    kinds.push_back(
        fmt::format("{} {} in {}", count, count == 1 ? "tensor" : "tensors", name_of(dtype)));
  }
  return fmt::format("{}: {} converted to {}{}", file.path().string(), fmt::join(kinds, " and "),
                     name_of(model),
                     counts.contains(DType::f64) && model != DType::f64 ? ", which rounds" : "");
}

/// Both names of a tied matrix must hold the same numbers.
void require_equal_copies(const SafetensorsFile& file) {
  const auto read = [&file](const char* name) {
    return converted(file.read(name), DType::f64, file.path().string(), name);
  };
  const Tensor embedding = read(kEmbeddingName), head = read(kHeadName);
  check_input(embedding.shape() == head.shape() &&
                  std::memcmp(embedding.raw(), head.raw(), head.nbytes()) == 0,
              "{}: {} and {} differ, but model.tie_embeddings makes them one matrix: set it to "
              "false for this checkpoint",
              file.path().string(), kEmbeddingName, kHeadName);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> parameter_tensors(const GPT& model) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Parameter& p : model.parameters()) {
    tensors.emplace_back(p.name, p.value.value());
  }
  return tensors;
}

void load_parameters(GPT& model, const SafetensorsFile& file, std::vector<std::string>& notes) {
  const auto names = match_tensors(model, file);
  if (model.config().tie_embeddings && file.has(kEmbeddingName) && file.has(kHeadName)) {
    require_equal_copies(file);
  }
  std::vector<Tensor> values;  // all are read before the first is written
  std::map<DType, int64_t> conversions;
  const std::vector<Parameter> parameters = model.parameters();
  for (const Parameter& p : parameters) {
    const std::string& name = names.at(p.name);
    const Tensor stored = file.read(name);
    if (stored.dtype() != p.value.dtype()) {
      ++conversions[stored.dtype()];
    }
    values.push_back(converted(stored, p.value.dtype(), file.path().string(), name));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    Variable parameter = parameters[i].value;
    Tensor(parameter.value()).copy_from(values[i]);
    parameter.changed();
  }
  if (!conversions.empty()) {
    notes.push_back(conversion_note(file, conversions, model.dtype()));
  }
}

std::string first_non_finite(const GPT& model) {
  for (const Parameter& p : model.parameters()) {
    const Tensor host = p.value.value().to(kCpu);
    if (first_bad(host) < host.numel()) {
      return p.name;
    }
  }
  return {};
}

}  // namespace headroom::nn
