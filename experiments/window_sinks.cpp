// One cache after another over the same passages.
#include "experiments/window_sinks.h"

namespace headroom::experiments {

std::vector<WindowLoss> window_losses(const nn::GPT& model, const Passages& passages,
                                      int64_t window, const std::vector<int64_t>& sinks,
                                      const PartDone& part_done) {
  check_input(window >= 1 && window < passages.tokens,
              "[window] a window of {} keys in a context of {} tokens never drops one: it must be "
              "from 1 to {}",
              window, passages.tokens, passages.tokens - 1);
  std::vector<WindowLoss> all = {{.window = 0, .sinks = 0, .loss = {}}};
  for (const int64_t count : sinks) {
    all.push_back({.window = window, .sinks = count, .loss = {}});
  }
  for (size_t i = 0; i < all.size(); ++i) {
    part_done(static_cast<int64_t>(i), std::ssize(all));
    infer::CacheSpec cache;
    cache.mask = {all[i].window, all[i].sinks};
    all[i].loss = passage_loss(model, passages, cache);
  }
  part_done(std::ssize(all), std::ssize(all));
  return all;
}

}  // namespace headroom::experiments
