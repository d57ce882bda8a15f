// A Variable is a Tensor with a gradient and a producer; the tape is the chain of producers. Copies
// are handles to the same value. Everything differentiable is made by record(), which each operator
// in ops.h calls once.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tensor/tensor.h"

namespace headroom::autograd {

class Gradients;
class Variable;
/// Told of a leaf when a backward pass has added its last part to the leaf's gradient.
using LeafDone = std::function<void(const Variable& leaf)>;
/// Adds the gradients of a node's inputs to their buffers. It captures Tensors, never Variables:
/// there are no cycles, and what it captures is exactly what the forward pass keeps for it.
using Backward = std::function<void(Gradients&)>;

class Variable {
 public:
  Variable() = default;  // absent: defined() is false
  /// A leaf. Its gradient is kept when `requires_grad`.
  explicit Variable(Tensor value, bool requires_grad = false);
  /// An operator's result for which nothing was recorded: a value, and nothing allocated beside it.
  static Variable unrecorded(Tensor value) {
    Variable result;
    result.value_ = std::move(value);
    return result;
  }

  bool defined() const { return value_.defined(); }
  const Tensor& value() const {
    if (!value_.defined()) [[unlikely]] {
      throw_absent();
    }
    return value_;
  }
  const Shape& shape() const { return value().shape(); }
  int64_t dim(int i) const { return value().dim(i); }
  DType dtype() const { return value().dtype(); }
  Device device() const { return value().device(); }

  bool requires_grad() const { return state_ != nullptr && state_->requires_grad; }
  /// The sum of the gradients of all backward passes since clear_grad(); absent when there was
  /// none.
  const Tensor& grad() const;
  void clear_grad();

  /// Gradients of this one-element variable with respect to every leaf that led to it. Frees the
  /// tape it walks. `leaf_done` is told of each of these leaves once, in the same order for the
  /// same tape.
  void backward(const LeafDone& leaf_done = {}) const;
  /// The same with an upstream gradient of this variable's shape and type.
  void backward(const Tensor& upstream, const LeafDone& leaf_done = {}) const;

  /// A view under another shape; gradients flow through.
  Variable reshape(const Shape& shape) const;

  /// A leaf's value in another type, made once and kept until changed() is called: how matrices in
  /// float32 meet activations in bf16.
  const Tensor& as(DType dtype) const;
  /// Whoever writes to the memory of a leaf's value() says so.
  void changed();
  /// How often that happened.
  uint64_t version() const;

 private:
  struct Node;
  class LeafUses;
  struct Converted {
    Tensor value;
    uint64_t version = 0;  // of the value it was made from
  };
  struct State {
    Tensor grad;
    bool requires_grad = false;
    std::shared_ptr<Node> producer;        // absent for leaves
    std::unique_ptr<Converted> converted;  // see as()
    uint64_t version = 0;
  };
  [[noreturn]] static void throw_absent();
  friend class Gradients;
  friend std::vector<Variable> record_always(const char*, std::vector<Tensor>,
                                             std::vector<Variable>, Backward);
  /// backward(); `is_one`: the upstream gradient is known to be 1.
  void walk(const Tensor& upstream, bool is_one, const LeafDone& leaf_done) const;
  State& state() const;  // of a leaf, or of what was recorded

  Tensor value_;
  std::shared_ptr<State> state_;  // absent for what is unrecorded
};

/// What a Backward closure sees: the gradients of the node's outputs, and where those of its inputs
/// go.
class Gradients {
 public:
  /// Gradient of output i; absent when nothing used that output.
  const Tensor& of(size_t output = 0) const { return outputs_[output]; }
  /// Whether of() is known to be 1, being that of the number that is differentiated: to read it
  /// would be to wait for the device.
  bool of_one() const { return of_one_; }
  /// Buffer for the gradient of input i, of the input's shape and type: to be overwritten at the
  /// first write and added to afterwards. Not wanted when the input needs none.
  kernels::Into into(size_t input);
  bool wanted(size_t input) const;
  /// Adds `gradient` to that of input i. The first one is taken as it is, without a copy.
  void add(size_t input, const Tensor& gradient);

 private:
  friend class Variable;
  Gradients(std::vector<Tensor> outputs, std::vector<Variable>& inputs, bool of_one)
      : outputs_(std::move(outputs)), inputs_(inputs), of_one_(of_one) {}
  /// Adds what into() kept apart.
  void finish();
  std::vector<Tensor> outputs_;
  std::vector<Variable>& inputs_;
  bool of_one_;
  /// Gradients of inputs that are the same variable as an earlier one.
  std::vector<std::pair<size_t, Tensor>> apart_;
};

/// While one lives, this thread records nothing and keeps nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
bool recording();

/// An operator's inputs, by reference: absent ones are allowed.
using Inputs = std::initializer_list<std::reference_wrapper<const Variable>>;
/// Whether an operator on these inputs will be recorded: recording is on and one of them requires
/// a gradient.
bool recorded(Inputs inputs);

/// The tape's end of record(): one node for several outputs.
std::vector<Variable> record_always(const char* op, std::vector<Tensor> values,
                                    std::vector<Variable> inputs, Backward backward);

/// The result of an operator: remembers `backward`, a Backward, when the operator is recorded, and
/// is a plain value otherwise, for which nothing but that value is allocated.
template <class F>
Variable record(const char* op, Tensor value, Inputs inputs, F backward) {
  if (!recorded(inputs)) {
    return Variable::unrecorded(std::move(value));
  }
  return record_always(op, {std::move(value)}, {inputs.begin(), inputs.end()},
                       std::move(backward))[0];
}
/// The same for operators with two outputs.
template <class F>
std::pair<Variable, Variable> record(const char* op, Tensor first, Tensor second, Inputs inputs,
                                     F backward) {
  if (!recorded(inputs)) {
    return {Variable::unrecorded(std::move(first)), Variable::unrecorded(std::move(second))};
  }
  const auto outputs = record_always(op, {std::move(first), std::move(second)},
                                     {inputs.begin(), inputs.end()}, std::move(backward));
  return {outputs[0], outputs[1]};
}

/// Tape nodes alive in this process: 0 during generation and after every backward pass.
int64_t live_nodes();

}  // namespace headroom::autograd
