// Cutting passages, and averaging their losses.
#include "experiments/passages.h"

#include <algorithm>

namespace headroom::experiments {

Passages cut_passages(std::span<const int32_t> ids, int64_t count, int64_t tokens) {
  const int64_t room = std::ssize(ids) / (tokens + 1);
  check_input(room > 0,
              "[passages] a passage of {} tokens and the one after them needs more than "
              "the {} tokens there are: ask for a shorter context, or give a longer text",
              tokens, ids.size());
  Passages result{.ids = {}, .tokens = tokens};
  const int64_t n = std::min(count, room), step = std::ssize(ids) / n;
  for (int64_t i = 0; i < n; ++i) {
    const auto begin = ids.begin() + i * step;
    result.ids.emplace_back(begin, begin + tokens + 1);
  }
  return result;
}

PassageLoss passage_loss(const nn::GPT& model, const Passages& passages,
                         const infer::CacheSpec& cache) {
  PassageLoss loss;
  loss.by_position.resize(static_cast<size_t>(passages.tokens), 0.0);
  for (const auto& ids : passages.ids) {
    const infer::StreamOptions options{
        .cache = cache, .context = 0, .dtype = model.dtype(), .chunk = 0};
    const infer::StreamLoss stream = infer::stream_loss(
        model, ids, options, [&](int64_t position, std::span<const double> nats) {
          for (size_t i = 0; i < nats.size(); ++i) {
            loss.by_position[static_cast<size_t>(position) + i] +=
                nats[i] / static_cast<double>(passages.count());
          }
        });
    loss.by_passage.push_back(stream.sum_nats / static_cast<double>(passages.tokens));
    loss.mean += loss.by_passage.back() / static_cast<double>(passages.count());
    loss.cache_bytes = stream.cache_bytes;
  }
  return loss;
}

}  // namespace headroom::experiments
