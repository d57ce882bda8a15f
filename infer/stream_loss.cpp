// Feeding a stream and comparing each hidden row with the token that came next.
#include "infer/stream_loss.h"

#include <algorithm>
#include <vector>

#include "configs/size.h"
#include "infer/block_cache.h"
#include "infer/forward.h"
#include "kernels/trace.h"

namespace headroom::infer {

namespace {

/// Turns hidden rows into losses, as many logits at a time as training holds, and adds them up.
class Losses {
 public:
  Losses(const nn::GPT& model, std::span<const int32_t> ids, const OnLosses& on_losses)
      : model_(model), ids_(ids), on_losses_(on_losses) {}

  OnHidden taker() {
    return [this](int64_t, int64_t first, const Tensor& rows) {
      const int64_t most = configs::head_rows(model_.vocab_size());
      for (int64_t row = 0; row < rows.dim(0); row += most) {
        take(first + row, rows.rows(row, std::min(row + most, rows.dim(0))));
      }
    };
  }
  double sum() const { return sum_; }

 private:
  void take(int64_t position, const Tensor& rows) {
    const autograd::NoGrad no_grad;
    const int64_t N = rows.dim(0);
    const Tensor logits = model_.head(nn::Variable(rows)).value();
    const Tensor targets =
        Tensor::from(ids_.subspan(static_cast<size_t>(position) + 1, static_cast<size_t>(N)), {N},
                     model_.device());
    Tensor losses = Tensor::empty({N}, logits.dtype(), model_.device()), no_gradient;
    kernels::backend(model_.device()).cross_entropy(logits, targets, 1.0, losses, no_gradient);
    nats_.clear();
    const Tensor host = losses.to(kCpu);
    for (int64_t i = 0; i < N; ++i) {
      nats_.push_back(host.rows(i, i + 1).item());
      sum_ += nats_.back();
    }
    on_losses_(position, nats_);
  }

  const nn::GPT& model_;
  std::span<const int32_t> ids_;
  const OnLosses& on_losses_;
  std::vector<double> nats_;
  double sum_ = 0;
};

Sequences inputs_of(std::span<const int32_t> ids) { return {{ids.begin(), ids.end() - 1}}; }

}  // namespace

double losses_through(const nn::GPT& model, nn::KVCache& cache, std::span<const int32_t> ids,
                      int64_t chunk, DType dtype, const OnLosses& on_losses) {
  Losses losses(model, ids, on_losses);
  feed(model, cache, inputs_of(ids), chunk, dtype, losses.taker());
  return losses.sum();
}

StreamLoss stream_loss(const nn::GPT& model, std::span<const int32_t> ids,
                       const StreamOptions& options, const OnLosses& on_losses) {
  const kernels::Phase phase("stream");
  check_cache_spec(options.cache, model.config());
  check_input(ids.size() > 1, "[eval] a loss needs at least 2 tokens: got {}", ids.size());
  StreamLoss result;
  result.tokens = static_cast<int64_t>(ids.size()) - 1;
  const int64_t context =
      options.context > 0 ? std::min(options.context, result.tokens) : result.tokens;
  check_input(
      model.config().position == configs::Position::rope || context <= model.config().block_size,
      "[eval] a stream of {} tokens passes model.block_size {}, where learned positions "
      "end: lower --context",
      context, model.config().block_size);
  const int64_t chunk =
      options.chunk > 0 ? options.chunk : prefill_chunk(model.config(), options.cache.mask);
  const auto stream_at = [&](int64_t begin) {
    const int64_t length = std::min(context, result.tokens - begin);
    return ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(length) + 1);
  };
  if (options.cache.recompute) {
    for (int64_t begin = 0; begin < result.tokens; begin += context, ++result.streams) {
      const auto stream = stream_at(begin);
      Losses losses(model, stream, on_losses);
      feed_whole(model, inputs_of(stream), options.cache.mask, options.dtype, losses.taker());
      result.sum_nats += losses.sum();
    }
    return result;
  }
  // A block at a time is what the smallest ring takes anyway.
  const BlockTable table(options.cache.mask, context, chunk == kernels::KVView::kBlock ? 1 : chunk);
  BlockCache cache(model.config(), table, 1, options.cache.storage(options.dtype), model.device());
  result.cache_slots = table.slots();
  result.cache_bytes = cache.bytes();
  for (int64_t begin = 0; begin < result.tokens; begin += context, ++result.streams) {
    cache.truncate(0, 0);
    result.sum_nats +=
        losses_through(model, cache, stream_at(begin), chunk, options.dtype, on_losses);
  }
  return result;
}

}  // namespace headroom::infer
