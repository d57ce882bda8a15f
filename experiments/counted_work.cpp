// Two generations, and the counts that they leave.
#include "experiments/counted_work.h"

namespace headroom::experiments {

CountedWork count_work(const nn::GPT& model, int64_t tokens,
                       const std::function<void()>& token_done) {
  const auto run = [&](bool recompute) {
    infer::GenerateOptions options;
    options.tokens = tokens;
    options.sampling.temperature = 0;
    options.cache.recompute = recompute;
    return infer::generate(model, {{0}}, options,
                           [&](int64_t, int32_t) {
                             token_done();
                             return true;
                           })
        .stats;
  };
  return {.naive = run(true), .cached = run(false)};
}

}  // namespace headroom::experiments
