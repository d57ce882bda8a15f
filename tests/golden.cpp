#include "tests/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace headroom::testing {
namespace {

std::string full_name(const std::string& group, const std::string& name) {
  return group.empty() ? name : group + "/" + name;
}

}  // namespace

Golden::Golden(const std::string& file)
    : file_(std::filesystem::path(HEADROOM_SOURCE_DIR) / "tests" / "golden" / file) {}

std::vector<std::string> Golden::cases(std::string_view prefix) const {
  std::set<std::string> found;
  for (const auto& [name, info] : file_.tensors()) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos && name.starts_with(prefix)) found.insert(name.substr(0, slash));
  }
  return {found.begin(), found.end()};
}

std::vector<std::string> Golden::names(const std::string& group) const {
  std::vector<std::string> found;
  for (const auto& [name, info] : file_.tensors()) {
    if (name.starts_with(group + "/")) found.push_back(name.substr(group.size() + 1));
  }
  return found;
}

bool Golden::has(const std::string& group, const std::string& name) const {
  return file_.has(full_name(group, name));
}

Tensor Golden::tensor(const std::string& group, const std::string& name, DType type) const {
  const Tensor stored = file_.read(full_name(group, name));
  if (stored.dtype() == DType::i32 || stored.dtype() == type) return stored;
  check(stored.dtype() == DType::f32 && type == DType::f64, "golden tensors come as f64 or f32");
  return Tensor::from(to_doubles(stored), stored.shape());
}

nlohmann::json Golden::arguments(const std::string& group) const {
  const auto found = file_.metadata().find(group);
  check(found != file_.metadata().end(), "golden case {} has no arguments", group);
  return nlohmann::json::parse(found->second);
}

double Golden::number(const std::string& group, const std::string& key) const {
  return arguments(group).at(key).get<double>();
}

std::string Golden::text(const std::string& group, const std::string& key) const {
  return arguments(group).at(key).get<std::string>();
}

double max_relative_error(const Tensor& a, const Tensor& b) {
  check(a.shape() == b.shape(), "compared tensors have shapes {} and {}", to_string(a.shape()),
        to_string(b.shape()));
  const std::vector<double> as = to_doubles(a), bs = to_doubles(b);
  double difference = 0, largest = 0;
  for (size_t i = 0; i < as.size(); ++i) {
    const double d = std::fabs(as[i] - bs[i]);
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, d);
    largest = std::max(largest, std::fabs(bs[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace headroom::testing
