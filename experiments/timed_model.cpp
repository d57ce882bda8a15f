// Timing prompts and single tokens.
#include "experiments/timed_model.h"

#include <algorithm>

#include "configs/size.h"
#include "experiments/milliseconds.h"
#include "infer/sampler.h"
#include "infer/verify.h"
#include "kernels/trace.h"

namespace headroom::experiments {

namespace {

constexpr uint64_t kSeed = 1;

/// Random numbers in the cache's type.
Tensor random_rows(const Shape& shape, DType dtype, Device device) {
  Tensor wide = Tensor::empty(shape, DType::f32), rows = Tensor::empty(shape, dtype);
  fill_normal(wide, RandomStream(kSeed, "timed"), 1.0);
  kernels::backend(kCpu).cast(wide, rows);
  return rows.to(device);
}

}  // namespace

double prefill_ms(const nn::GPT& model, int64_t tokens, DType dtype) {
  infer::BlockCache cache(model.config(), infer::BlockTable({}, tokens), 1, dtype, model.device());
  const infer::Sequences prompt = {infer::synthetic_tokens(tokens, model.vocab_size(), kSeed, 0)};
  return milliseconds([&] {
    const kernels::Phase phase("prefill");
    infer::LastRows last(prompt);
    infer::feed(model, cache, prompt, infer::kPrefillChunk, dtype, last.keeper());
    last.logits(model);
    kernels::backend(model.device()).wait();
  });
}

double naive_step_ms(const nn::GPT& model, int64_t tokens, DType dtype) {
  const infer::Sequences whole = {infer::synthetic_tokens(tokens, model.vocab_size(), kSeed, 0)};
  return milliseconds([&] {
    const kernels::Phase phase("uncached pass");
    infer::LastRows last(whole);
    infer::feed_whole(model, whole, {}, dtype, last.keeper());
    last.logits(model);
    kernels::backend(model.device()).wait();
  });
}

TimedDecode::TimedDecode(const nn::GPT& model, int64_t batch, int64_t most, DType dtype)
    : model_(model),
      batch_(batch),
      dtype_(dtype),
      decoder_(infer::cached_decoder(model, {}, {.batch = batch, .tokens = most}, dtype, dtype)) {
  for (int64_t b = 0; b < batch; ++b) {
    next_.push_back(
        infer::synthetic_tokens(1, model.vocab_size(), kSeed, static_cast<uint64_t>(b)));
  }
}

void TimedDecode::fill(int64_t context) {
  const configs::ModelConfig& m = model_.config();
  constexpr int64_t kBlock = kernels::KVView::kBlock;
  const configs::KVShape kv = configs::kv_shape(m);
  const Tensor keys = random_rows({batch_, kBlock, kv.heads, kv.key_size}, dtype_, model_.device());
  const Tensor values =
      random_rows({batch_, kBlock, kv.heads, kv.value_size}, dtype_, model_.device());
  for (int64_t have = decoder_->length(0); have < context;) {
    const int64_t more = std::min(kBlock, context - have);
    const Tensor counts = Tensor::from(
        std::vector<int32_t>(static_cast<size_t>(batch_), static_cast<int32_t>(more)), {batch_});
    for (int64_t layer = 0; layer < m.n_layer; ++layer) {
      decoder_->cache()->append(layer, keys, values, counts);
    }
    have += more;
  }
  step_ms();
  step_ms();
}

double TimedDecode::step_ms() {
  const int64_t before = decoder_->length(0);
  const double ms = milliseconds([&] {
    const kernels::Phase step("decode step");
    const Tensor logits = decoder_->feed(next_);
    for (int64_t b = 0; b < batch_; ++b) {
      const Tensor row = logits.rows(b, b + 1).reshape({model_.vocab_size()});
      next_[static_cast<size_t>(b)] = {infer::choose(row, {.temperature = 0}, b, 0).token};
    }
  });
  for (int64_t b = 0; b < batch_; ++b) {
    decoder_->truncate(b, before);
  }
  return ms;
}

}  // namespace headroom::experiments
