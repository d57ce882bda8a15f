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
  GradientSync* sync = options.sync;
  const int64_t workers = sync != nullptr ? sync->workers().size() : 1;
  const auto count = static_cast<double>(std::ssize(batches) * workers);
  optimizer.clear_gradients();
  nn::DropoutStream dropout{options.seed, options.step, options.first_sequence};
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
    result.loss = kernels::sum_over(sync->workers(), result.loss);
    require_finite(result.loss, "loss");
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
