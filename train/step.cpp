// Forward, backward, clip, update.
#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "kernels/trace.h"

namespace headroom::train {

using kernels::Phase;

StepResult train_step(const nn::GPT& model, Optimizer& optimizer, std::span<const Batch> batches,
                      const StepOptions& options) {
  const auto require_finite = [&options](double value, const char* what) {
    check<NotFinite>(std::isfinite(value), "[train] the {} is {} at step {}", what, value,
                     options.step);
  };
  const Phase step("training step");
  StepResult result;
  const auto count = static_cast<double>(batches.size());
  optimizer.clear_gradients();
  nn::DropoutStream dropout{options.seed, options.step, 0};
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
    result.loss += loss.value().item() / count;
    require_finite(result.loss, "loss");
    {
      const Phase backward("backward");
      loss.backward();
    }
    dropout.first_sequence += batch.tokens.dim(0);
  }
  // The gradients are sums over the batches; their mean is never formed, its factor travels along.
  {
    const Phase clip("clip");
    result.gradient_norm = optimizer.gradient_norm() / count;
  }
  require_finite(result.gradient_norm, "gradient norm");
  const double clip = options.clip_norm > 0
                          ? std::min(1.0, options.clip_norm / (result.gradient_norm + 1e-6))
                          : 1.0;
  {
    const Phase update("optimizer");
    optimizer.update(options.step, options.factor, clip / count);
  }
  optimizer.clear_gradients();
  return result;
}

}  // namespace headroom::train
