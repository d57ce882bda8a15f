// Passes over ragged sequences, through a cache in chunks or whole without one.
#include "infer/forward.h"

#include <algorithm>

#include "configs/size.h"

namespace headroom::infer {

namespace {

/// One pass over tokens first .. first + T - 1 of each sequence, T being the most that any has of
/// them; what a sequence lacks is padding at the end.
void pass_over(const nn::GPT& model, const Sequences& tokens, int64_t first, int64_t T,
               nn::Pass pass, const OnHidden& on_hidden) {
  const auto B = static_cast<int64_t>(tokens.size());
  std::vector<int32_t> ids(static_cast<size_t>(B * T), 0), counts;
  for (int64_t b = 0; b < B; ++b) {
    const auto& sequence = tokens[static_cast<size_t>(b)];
    const auto size = static_cast<int64_t>(sequence.size());
    const int64_t begin = std::min(first, size), end = std::min(first + T, size);
    std::copy(sequence.begin() + begin, sequence.begin() + end, ids.begin() + b * T);
    counts.push_back(static_cast<int32_t>(end - begin));
  }
  if (pass.cache != nullptr) {
    pass.counts = Tensor::from(counts, {B});
  }
  const Tensor hidden = model.hidden(Tensor::from(ids, {B, T}, model.device()), pass).value();
  const Tensor rows = hidden.reshape({B * T, hidden.dim(2)});
  for (int64_t b = 0; b < B; ++b) {
    if (const int32_t count = counts[static_cast<size_t>(b)]; count > 0) {
      on_hidden(b, first, rows.rows(b * T, b * T + count));
    }
  }
}

int64_t longest(const Sequences& tokens) {
  size_t most = 0;
  for (const auto& sequence : tokens) {
    most = std::max(most, sequence.size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace

int64_t count_tokens(const Sequences& tokens) {
  int64_t sum = 0;
  for (const auto& row : tokens) {
    sum += static_cast<int64_t>(row.size());
  }
  return sum;
}

int64_t prefill_chunk(const configs::ModelConfig& model, const kernels::AttentionMask& mask) {
  const bool windows = mask.window > 0 || configs::local_layers(model) > 0;
  return windows ? kernels::KVView::kBlock : kPrefillChunk;
}

void feed(const nn::GPT& model, nn::KVCache& cache, const Sequences& tokens, int64_t chunk,
          DType dtype, const OnHidden& on_hidden) {
  check(chunk > 0, "[feed] a chunk of at least one token is needed: got {}", chunk);
  const autograd::NoGrad no_grad;
  const int64_t most = longest(tokens);
  for (int64_t first = 0; first < most; first += chunk) {
    pass_over(model, tokens, first, std::min(chunk, most - first),
              {.dtype = dtype, .cache = &cache, .counts = {}, .mask = {}, .dropout = nullptr},
              on_hidden);
  }
}

void feed_whole(const nn::GPT& model, const Sequences& tokens, kernels::AttentionMask mask,
                DType dtype, const OnHidden& on_hidden) {
  const autograd::NoGrad no_grad;
  if (const int64_t most = longest(tokens); most > 0) {
    pass_over(model, tokens, 0, most,
              {.dtype = dtype, .cache = nullptr, .counts = {}, .mask = mask, .dropout = nullptr},
              on_hidden);
  }
}

OnHidden LastRows::keeper() {
  return [this](int64_t sequence, int64_t first, const Tensor& rows) {
    const auto b = static_cast<size_t>(sequence);
    const auto given = static_cast<int64_t>(tokens_[b].size());
    const int64_t kept = std::min(most_, given), skipped = given - kept;
    if (first + rows.dim(0) <= skipped) {
      return;
    }
    if (!rows_[b].defined()) {
      rows_[b] = Tensor::empty({kept, rows.dim(1)}, rows.dtype(), rows.device());
    }
    const int64_t begin = std::max<int64_t>(0, skipped - first), to = first + begin - skipped;
    rows_[b].rows(to, to + rows.dim(0) - begin).copy_from(rows.rows(begin, rows.dim(0)));
  };
}

Tensor LastRows::logits(const nn::GPT& model) const {
  int64_t given = 0;
  Tensor some;
  for (const Tensor& rows : rows_) {
    given += rows.defined() ? rows.dim(0) : 0;
    some = rows.defined() ? rows : some;
  }
  check(given > 0, "[generate] no sequence was given a token");
  Tensor all = Tensor::empty({given, some.dim(1)}, some.dtype(), some.device());
  int64_t n = 0;
  for (const Tensor& rows : rows_) {
    if (rows.defined()) {
      all.rows(n, n + rows.dim(0)).copy_from(rows);
      n += rows.dim(0);
    }
  }
  const autograd::NoGrad no_grad;
  return model.head(nn::Variable(all)).value();
}

}  // namespace headroom::infer
