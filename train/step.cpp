// Forward, backward, clip, update.
#include "train/step.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/trace.h"

namespace headroom::train {

using kernels::Phase;

namespace {

/// What the host gets to know of a step, gathered on the device to be read at once: the loss of
/// each batch, then the gradients' sum of squares.
class Readings {
 public:
  Readings(int64_t batches, Device device)
      : numbers_(Tensor::empty({batches + 1}, DType::f64, device)) {}

  void add(const Tensor& number) {
    Tensor place = numbers_.rows(next_, next_ + 1);
    kernels::backend(place.device()).cast(number.reshape({1}), place);
    ++next_;
  }
  std::vector<double> read() const { return numbers_.to_vector<double>(); }

 private:
  Tensor numbers_;
  int64_t next_ = 0;
};

StepResult result_of(const Readings& readings, double count, const StepOptions& options) {
  std::vector<double> losses = readings.read();
  const double squares = losses.back();
  losses.pop_back();
  StepResult result;
  for (const double loss : losses) {
    result.loss += loss / count;
  }
  if (options.sync != nullptr) {
    result.loss = kernels::sum_over(options.sync->workers(), result.loss);
  }
  result.gradient_norm = std::sqrt(squares) / count;
  for (const auto& [value, what] :
       {std::pair(result.loss, "loss"), std::pair(result.gradient_norm, "gradient norm")}) {
    check<NotFinite>(std::isfinite(value), "[train] the {} is {} at step {}", what, value,
                     options.step);
  }
  return result;
}

}  // namespace

StepResult train_step(const nn::GPT& model, Optimizer& optimizer, std::span<const Batch> batches,
                      const StepOptions& options) {
  const Phase step("training step");
  GradientSync* sync = options.sync;
  const int64_t workers = sync != nullptr ? sync->workers().size() : 1;
  const auto count = static_cast<double>(std::ssize(batches) * workers);
  optimizer.clear_gradients();
  nn::DropoutStream dropout{options.seed, options.step, options.first_sequence};
  Readings readings(std::ssize(batches), model.device());
  for (const Batch& batch : batches) {
    const nn::Pass pass{.dtype = options.dtype,
                        .cache = nullptr,
                        .counts = {},
                        .mask = {},
                        .dropout = model.config().dropout > 0 ? &dropout : nullptr};
    nn::Variable loss;
    {
      const Phase forward("forward");
      loss = model.loss(batch.tokens, batch.targets, pass);
      readings.add(loss.value());
    }
    {
      const Phase backward("backward");
      const bool last = &batch == &batches.back();
      loss.backward(sync != nullptr && last
                        ? [sync](const nn::Variable& leaf) { sync->ready(leaf); }
                        : autograd::LeafDone());
    }
    dropout.first_sequence += batch.tokens.dim(0);
  }
  if (sync != nullptr) {
    const Phase wait("workers");
    sync->finish();
  }
  const Tensor squares = [&] {
    const Phase clip("clip");
    Tensor sum = optimizer.gradient_squares();
    readings.add(sum);
    return sum;
  }();
  {
    // The gradients are sums over the batches; their mean is never formed, its factor travels
    // along.
    const Phase update("optimizer");
    optimizer.update(options.step, options.factor, {squares, count, options.clip_norm});
  }
  optimizer.clear_gradients();
  return result_of(readings, count, options);
}

}  // namespace headroom::train
