// The tape and the walk back along it.
#include "autograd/variable.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <utility>

namespace headroom::autograd {

namespace {
thread_local bool recording_on = true;
std::atomic<int64_t> node_count{0};
std::atomic<uint64_t> next_sequence{0};
const Tensor kNoGradient;
}  // namespace

struct Variable::Node {
  Node(const char* name, std::vector<Variable> from, Backward how)
      : op(name), sequence(next_sequence++), inputs(std::move(from)), backward(std::move(how)) {
    ++node_count;
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { --node_count; }

  const char* op;
  uint64_t sequence;  // an input's producer always has a smaller one
  std::vector<Variable> inputs;
  std::vector<std::weak_ptr<State>> outputs;
  Backward backward;
};

Variable::Variable(Tensor value, bool requires_grad)
    : value_(std::move(value)), state_(std::make_shared<State>()) {
  state_->requires_grad = requires_grad;
}

void Variable::throw_absent() {
  throw Error("[autograd] asked for the value of an absent variable");
}
const Tensor& Variable::grad() const {
  if (state_ == nullptr) {
    return kNoGradient;
  }
  return state_->grad;
}
Variable::State& Variable::state() const {
  check(state_ != nullptr,
        "[autograd] a result that was not recorded has a value and nothing else");
  return *state_;
}
void Variable::clear_grad() { state().grad = Tensor(); }
void Variable::changed() { ++state().version; }
uint64_t Variable::version() const { return state().version; }

const Tensor& Variable::as(DType dtype) const {
  if (value().dtype() == dtype) {
    return value();
  }
  State& s = state();
  const bool made = s.converted != nullptr && s.converted->value.dtype() == dtype;
  if (!made) {
    s.converted = std::make_unique<Converted>();
    s.converted->value = Tensor::empty(shape(), dtype, device());
  }
  if (!made || s.converted->version != s.version) {
    kernels::backend(device()).cast(value(), s.converted->value);
    s.converted->version = s.version;
  }
  return s.converted->value;
}

Variable Variable::reshape(const Shape& shape) const {
  const Shape before = value().shape();
  return record("reshape", value().reshape(shape), {*this},
                [before](Gradients& g) { g.add(0, g.of().reshape(before)); });
}

/// How many inputs of nodes still to come each leaf is; nobody counts where nobody listens.
class Variable::LeafUses {
 public:
  LeafUses(Node& last, const LeafDone& leaf_done) : leaf_done_(leaf_done) {
    if (leaf_done_) {
      count(last);
    }
  }

  void took_its_turn(const Node& node) {
    for (const Variable& input : node.inputs) {
      const auto use = left_.find(input.state_.get());
      if (use != left_.end() && --use->second == 0) {
        leaf_done_(input);
        left_.erase(use);
      }
    }
  }

 private:
  void count(Node& last) {
    std::set<const Node*> seen = {&last};
    std::vector<const Node*> open = {&last};
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      for (const Variable& input : node.inputs) {
        if (!input.requires_grad()) {
          continue;
        }
        const Node* producer = input.state_->producer.get();
        if (producer == nullptr) {
          ++left_[input.state_.get()];
        } else if (seen.insert(producer).second) {
          open.push_back(producer);
        }
      }
    }
  }

  const LeafDone& leaf_done_;
  std::map<const State*, int64_t> left_;
};

void Variable::backward(const LeafDone& leaf_done) const {
  check(value().numel() == 1, "[backward] a gradient needs one number to differentiate: shape {}",
        shape());
  Tensor one = Tensor::empty(shape(), dtype(), device());
  kernels::backend(device()).fill(one, 1.0);
  walk(one, true, leaf_done);
}

void Variable::backward(const Tensor& upstream, const LeafDone& leaf_done) const {
  walk(upstream, false, leaf_done);
}

void Variable::walk(const Tensor& upstream, bool is_one, const LeafDone& leaf_done) const {
  check(requires_grad() && state_->producer != nullptr,
        "[backward] nothing was recorded for this variable: no input requires a gradient, or "
        "recording was off");
  check(upstream.shape() == shape() && upstream.dtype() == dtype(),
        "[backward] upstream gradient {} {} for a variable {} {}", name_of(upstream.dtype()),
        upstream.shape(), name_of(dtype()), shape());
  state_->grad = upstream;
  // Latest first: when a node's turn comes, everything that used its outputs has had its turn. The
  // outputs are kept until then, since their gradients are.
  struct Turn {
    std::shared_ptr<Node> node;
    std::vector<Variable> outputs;
  };
  std::map<uint64_t, Turn, std::greater<>> pending;
  const auto enqueue = [&](const Variable& output) {
    const auto& node = output.state_->producer;
    Turn& turn = pending[node->sequence];
    turn.node = node;
    turn.outputs.push_back(output);
  };
  enqueue(*this);
  LeafUses leaves(*state_->producer, leaf_done);
  while (!pending.empty()) {
    const Turn turn = std::move(pending.extract(pending.begin()).mapped());
    Node& node = *turn.node;
    check(node.backward != nullptr,
          "[backward] {}: this part of the tape was freed by an earlier backward pass", node.op);
    std::vector<Tensor> output_grads;
    for (const auto& weak : node.outputs) {
      const auto output = weak.lock();
      output_grads.push_back(output == nullptr ? Tensor() : std::exchange(output->grad, Tensor()));
    }
    const bool of_one = is_one && &node == state_->producer.get() && output_grads.size() == 1;
    Gradients gradients(std::move(output_grads), node.inputs, of_one);
    node.backward(gradients);
    gradients.finish();
    for (const Variable& input : node.inputs) {
      if (input.requires_grad() && input.state_->producer != nullptr &&
          input.state_->grad.defined()) {
        enqueue(input);
      }
    }
    leaves.took_its_turn(node);
    node.backward = nullptr;  // frees what the forward pass saved for it
    node.inputs.clear();
  }
}

bool Gradients::wanted(size_t input) const { return inputs_[input].requires_grad(); }

kernels::Into Gradients::into(size_t input) {
  if (!wanted(input)) {
    return {};
  }
  Variable::State& s = *inputs_[input].state_;
  const Tensor& value = inputs_[input].value();
  for (size_t earlier = 0; earlier < input; ++earlier) {
    if (inputs_[earlier].state_.get() == &s) {
      // One kernel can't write two gradients into one buffer.
      apart_.emplace_back(input, Tensor::empty(value.shape(), value.dtype(), value.device()));
      return {apart_.back().second, false};
    }
  }
  if (!s.grad.defined()) {
    s.grad = Tensor::empty(value.shape(), value.dtype(), value.device());
    return {s.grad, false};
  }
  if (s.grad.shared()) {  // add() took it from someone who may still read it
    s.grad = s.grad.clone();
  }
  return {s.grad, true};
}

void Gradients::add(size_t input, const Tensor& gradient) {
  if (!wanted(input)) {
    return;
  }
  Variable::State& s = *inputs_[input].state_;
  if (!s.grad.defined()) {
    s.grad = gradient;
    return;
  }
  if (s.grad.shared()) {
    s.grad = s.grad.clone();
  }
  kernels::backend(gradient.device()).scale(gradient, 1.0, {s.grad, true});
}

void Gradients::finish() {
  for (const auto& [input, gradient] : apart_) {
    add(input, gradient);
  }
}

bool recorded(Inputs inputs) {
  return recording_on && std::any_of(inputs.begin(), inputs.end(),
                                     [](const Variable& input) { return input.requires_grad(); });
}

std::vector<Variable> record_always(const char* op, std::vector<Tensor> values,
                                    std::vector<Variable> inputs, Backward backward) {
  const auto node = std::make_shared<Variable::Node>(op, std::move(inputs), std::move(backward));
  std::vector<Variable> outputs;
  for (Tensor& value : values) {
    Variable output(std::move(value), true);
    output.state_->producer = node;
    node->outputs.push_back(output.state_);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

NoGrad::NoGrad() : before_(std::exchange(recording_on, false)) {}
NoGrad::~NoGrad() { recording_on = before_; }
bool recording() { return recording_on; }
int64_t live_nodes() { return node_count; }

}  // namespace headroom::autograd
