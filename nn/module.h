// Modules own named parameters and compose. A module is told its full name when it is made, so a
// parameter's name is known where it is created, and with it the random numbers it starts from.
#pragma once

#include <string>
#include <vector>

#include "autograd/variable.h"

namespace headroom::nn {

using autograd::Variable;

struct Parameter {
  std::string name;  // "model.layers.0.self_attn.k_proj.weight"
  Variable value;
};

/// How parameters start.
struct Init {
  enum class Kind : uint8_t { normal, ones, zeros };
  Kind kind = Kind::normal;
  double sd = 0;
  static Init normal(double sd) { return {Kind::normal, sd}; }
  static Init ones() { return {Kind::ones}; }
  static Init zeros() { return {Kind::zeros}; }
};

/// Where in the model a module stands, and how its parameters are made.
struct Scope {
  std::string name = {};
  uint64_t seed = 0;
  DType dtype = DType::f32;  // f64 for proofs and gradient checks
  Device device = kCpu;
  bool draw = true;  // false: the values will be loaded, drawing them would be waste
  Scope in(const std::string& child) const;
};

class Module {
 public:
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// This module's parameters and its children's, in the order of the forward pass. A tied matrix
  /// appears once.
  std::vector<Parameter> parameters() const;
  /// Changes whenever one of them does.
  uint64_t version() const;

 protected:
  Module() = default;
  ~Module() = default;
  /// Makes the parameter scope.name + "." + name. Its numbers are the stream of (seed, full name):
  /// what other parameters there are, and how large, changes nothing about them.
  Variable parameter(const Scope& scope, const std::string& name, const Shape& shape, Init init);
  /// Children are plain members; a module lists them once, in the order of the forward pass.
  void child(const Module& module) { children_.push_back(&module); }

 private:
  std::vector<Parameter> own_;
  std::vector<const Module*> children_;
};

}  // namespace headroom::nn
