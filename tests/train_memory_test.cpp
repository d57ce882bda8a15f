// Memory stays flat while training goes on (PRF-03): a steady step allocates nothing new.
#include <gtest/gtest.h>

#include "nn/gpt.h"
#include "tensor/allocator.h"
#include "train/step.h"
#include "train_run.h"

namespace headroom::testing {

TEST(TrainMemory, SteadyStepsReserveNothingMore) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const configs::Config config = small_config("");
    constexpr int64_t kVocabulary = 29;
    const nn::GPT model(config.model, kVocabulary, nn::Scope{.seed = 3});
    train::Optimizer optimizer(config.train, model.parameters(), dtype);
    const Shape shape{4, config.model.block_size};
    const auto step = [&](int64_t number) {
      const auto tokens = [&](uint64_t which) {
        std::vector<int32_t> ids(static_cast<size_t>(shape.numel()));
        const RandomStream stream(1, "tokens", static_cast<uint64_t>(number), which);
        for (size_t i = 0; i < ids.size(); ++i) {
          ids[i] = static_cast<int32_t>(stream.integer(i, kVocabulary));
        }
        return Tensor::from(ids, shape);
      };
      const train::Batch batch{tokens(0), tokens(1)};
      train::train_step(model, optimizer, std::span(&batch, 1),
                        {.step = number, .clip_norm = 1.0, .dtype = dtype});
    };
    for (int64_t i = 1; i <= 3; ++i) {
      step(i);
    }
    const size_t reserved = allocator(kCpu).bytes_reserved();
    const size_t in_use = allocator(kCpu).bytes_in_use();
    for (int64_t i = 4; i <= 200; ++i) {
      step(i);
    }
    EXPECT_EQ(allocator(kCpu).bytes_reserved(), reserved);
    EXPECT_EQ(allocator(kCpu).bytes_in_use(), in_use);
  }
}

}  // namespace headroom::testing
