// Forward, backward, clip, update.
#include "train/step.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/trace.h"

namespace headroom::train {

using kernels::Phase;

namespace {

StepResult read(const std::vector<Tensor>& losses, const Tensor& squares, double count,
                const StepOptions& options) {
  StepResult result;
  for (const Tensor& loss : losses) {
    result.loss += loss.item() / count;
  }
  if (options.sync != nullptr) {
    result.loss = kernels::sum_over(options.sync->workers(), result.loss);
  }
  result.gradient_norm = std::sqrt(squares.item()) / count;
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
  std::vector<Tensor> losses;
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
    }
    losses.push_back(loss.value());
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
    return optimizer.gradient_squares();
  }();
  {
    // The gradients are sums over the batches; their mean is never formed, its factor travels
    // along.
    const Phase update("optimizer");
    optimizer.update(options.step, options.factor, {squares, count, options.clip_norm});
  }
  optimizer.clear_gradients();
  return read(losses, squares, count, options);
}

}  // namespace headroom::train
