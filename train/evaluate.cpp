// Windows over a token stream, and the sum of their losses.
#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/trace.h"

namespace headroom::train {

namespace {

/// Inputs [begin, begin + length) and how many of their targets, the last ones, are counted here.
struct Window {
  int64_t begin = 0;
  int64_t length = 0;
  int64_t counted = 0;
};

std::vector<Window> windows_of(int64_t targets, int64_t context, int64_t stride) {
  std::vector<Window> windows;
  for (int64_t covered = 0; covered < targets;) {
    const int64_t begin = static_cast<int64_t>(windows.size()) * stride;
    const int64_t length = std::min(context, targets - begin);
    windows.push_back({begin, length, begin + length - covered});
    covered = begin + length;
  }
  return windows;
}

/// Sum of the counted losses of windows of one length.
double sum_of_losses(const nn::GPT& model, std::span<const int32_t> ids,
                     std::span<const Window> windows, DType dtype) {
  const int64_t length = windows[0].length;
  std::vector<int32_t> inputs, targets;
  int64_t counted = 0;
  for (const Window& w : windows) {
    const auto first = ids.begin() + w.begin;
    inputs.insert(inputs.end(), first, first + length);
    targets.insert(targets.end(), static_cast<size_t>(length - w.counted), -1);
    targets.insert(targets.end(), first + length - w.counted + 1, first + length + 1);
    counted += w.counted;
  }
  const Shape shape{static_cast<int64_t>(windows.size()), length};
  const nn::Pass pass{.dtype = dtype, .cache = nullptr, .counts = {}, .mask = {}};
  const nn::Variable mean =
      model.loss(Tensor::from(inputs, shape), Tensor::from(targets, shape), pass);
  return static_cast<double>(counted) * mean.value().item();
}

}  // namespace

Evaluation evaluate(const nn::GPT& model, const text::Tokens& tokens,
                    const text::Tokenizer& tokenizer, const EvaluateOptions& options) {
  const kernels::Phase phase("evaluation");
  Evaluation result;
  result.context = options.context > 0 ? options.context : model.config().block_size;
  result.stride = options.stride > 0 ? options.stride : result.context;
  result.tokens = static_cast<int64_t>(tokens.ids.size()) - 1;
  check_input(result.tokens > 0, "[eval] a loss needs at least 2 tokens: got {}",
              tokens.ids.size());
  check_input(result.stride <= result.context,
              "[eval] stride {} would skip tokens: it must be at most the context, {}",
              result.stride, result.context);
  result.bytes =
      tokens.bytes - static_cast<int64_t>(tokenizer.token_bytes(tokens.ids.front()).size());

  const autograd::NoGrad no_gradients;
  const std::vector<Window> windows = windows_of(result.tokens, result.context, result.stride);
  result.windows = static_cast<int64_t>(windows.size());
  double sum = 0;
  int64_t batch = 0;
  for (size_t begin = 0; begin < windows.size();) {
    size_t end = begin + 1;
    while (end < windows.size() && windows[end].length == windows[begin].length &&
           static_cast<int64_t>(end - begin) < options.batch_size) {
      ++end;
    }
    if (batch++ % options.workers->size() == options.workers->rank()) {
      sum += sum_of_losses(model, tokens.ids, std::span(windows).subspan(begin, end - begin),
                           options.dtype);
    }
    begin = end;
  }
  sum = kernels::sum_over(*options.workers, sum);
  result.loss_nats = sum / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss_nats);
  result.bits_per_byte = sum / std::numbers::ln2 / static_cast<double>(result.bytes);
  return result;
}

}  // namespace headroom::train
