// How parameters are named, drawn and listed.
#include "nn/module.h"

#include "kernels/backend.h"
#include "tensor/rng.h"

namespace headroom::nn {

Scope Scope::in(const std::string& child) const {
  Scope inner = *this;
  inner.name = name.empty() ? child : name + "." + child;
  return inner;
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> all = own_;
  for (const Module* module : children_) {
    for (Parameter& p : module->parameters()) {
      all.push_back(std::move(p));
    }
  }
  return all;
}

uint64_t Module::version() const {
  uint64_t sum = 0;
  for (const Parameter& p : own_) {
    sum += p.value.version();
  }
  for (const Module* module : children_) {
    sum += module->version();
  }
  return sum;
}

Variable Module::parameter(const Scope& scope, const std::string& name, const Shape& shape,
                           Init init) {
  const std::string full_name = scope.in(name).name;
  Tensor value = Tensor::zeros(shape, scope.dtype);
  if (scope.draw && init.kind == Init::Kind::normal) {
    fill_normal(value, RandomStream(scope.seed, full_name), init.sd);
  } else if (init.kind == Init::Kind::ones) {
    kernels::backend(kCpu).fill(value, 1.0);
  }
  own_.push_back({full_name, Variable(value.to(scope.device), true)});
  return own_.back().value;
}

}  // namespace headroom::nn
