// Inputs by copies, then the model: asked for, recorded or repeated.
#include "infer/decode_step.h"

#include <algorithm>

namespace headroom::infer {

DecodeStep::DecodeStep(const nn::GPT& model, BlockCache& cache, DType dtype)
    : model_(model),
      cache_(cache),
      dtype_(dtype),
      counts_(Tensor::empty({cache.batch()}, DType::i32)) {}

bool DecodeStep::is_step(const Sequences& tokens) {
  const auto longer = [](size_t size) {
    return [size](const std::vector<int32_t>& each) { return each.size() > size; };
  };
  return std::none_of(tokens.begin(), tokens.end(), longer(1)) &&
         std::any_of(tokens.begin(), tokens.end(), longer(0));
}

Tensor DecodeStep::run(const Sequences& tokens) {
  const autograd::NoGrad no_grad;
  cache_.bind(model_.weights_version());
  fill(tokens);
  if (recording_ != nullptr) {
    recording_->replay();
    cache_.repeated();
    ++repeated_;
  } else if (warm_) {
    recording_ = kernels::backend(model_.device()).record([this] { compute(); });
  } else {
    compute();
    warm_ = true;
  }
  const int64_t given = count_tokens(tokens);
  Tensor rows = Tensor::empty({given, logits_.dim(1)}, logits_.dtype(), logits_.device());
  for (int64_t b = 0, n = 0; n < given; ++b) {
    if (!tokens[static_cast<size_t>(b)].empty()) {
      rows.rows(n, n + 1).copy_from(logits_.rows(b, b + 1));
      ++n;
    }
  }
  return rows;
}

/// What the host decides about a step.
void DecodeStep::fill(const Sequences& tokens) {
  const Device device = model_.device();
  const int64_t B = cache_.batch();
  Tensor ids = Tensor::zeros({B, 1}, DType::i32);
  for (int64_t b = 0; b < B; ++b) {
    const std::vector<int32_t>& given = tokens.at(static_cast<size_t>(b));
    counts_.data<int32_t>()[b] = static_cast<int32_t>(given.size());
    if (!given.empty()) {
      const int32_t id = given.front();
      check(id >= 0 && id < model_.vocab_size(), "[generate] token ids must be in 0..{}: got {}",
            model_.vocab_size() - 1, id);
      ids.data<int32_t>()[b] = id;
    }
  }
  const nn::TokenPositions positions = nn::token_positions(
      model_.config(), B, 1,
      {.dtype = dtype_, .cache = &cache_, .counts = counts_, .mask = {}, .dropout = nullptr});
  put_there(ids_, ids, device);
  put_there(positions_.index, positions.index, device);
  if (positions.sink_index.defined()) {
    put_there(positions_.sink_index, positions.sink_index, device);
  }
  cache_.begin(counts_, 1);
}

void DecodeStep::compute() {
  const nn::Pass pass{.dtype = dtype_,
                      .cache = &cache_,
                      .counts = counts_,
                      .positions = &positions_,
                      .mask = {},
                      .dropout = nullptr};
  const nn::Variable hidden = model_.hidden(ids_, pass);
  logits_ = model_.head(hidden.reshape({cache_.batch(), hidden.dim(2)})).value();
}

}  // namespace headroom::infer
