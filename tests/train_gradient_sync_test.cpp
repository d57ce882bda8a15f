// Gradients of several workers: when they travel, what arrives, and how a step uses it.
#include "train/gradient_sync.h"

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "train/step.h"
#include "train_run.h"

namespace headroom::testing {
namespace {

/// The second of two workers stands for both: the other one has the same numbers.
class Twins final : public kernels::Communicator {
 public:
  int64_t rank() const override { return 1; }
  int64_t size() const override { return 2; }
  int64_t local_size() const override { return 1; }
  int64_t local_rank() const override { return 0; }
  void begin_sum(const Tensor& x) override {
    kernels::backend(kCpu).scale(x, 2.0, {x});
    sums.push_back(x.numel());
  }
  void progress() override {}
  void finish() override { ++finished; }
  void broadcast(const Tensor& x, int64_t) override {
    if (differ && x.numel() == 16) kernels::backend(kCpu).scale(x, 1.5, {x});
  }
  [[noreturn]] void abort(int status) override { std::_Exit(status); }

  std::vector<int64_t> sums;
  int finished = 0;
  bool differ = false;
};

nn::GPT tiny(uint64_t seed = 1) { return {small_config("").model, 31, nn::Scope{.seed = seed}}; }

train::Batch batch_of_four() {
  std::vector<int32_t> ids;
  const RandomStream stream(1, "ids");
  for (uint64_t i = 0; i < 65; ++i) ids.push_back(static_cast<int32_t>(stream.integer(i, 31)));
  return {Tensor::from(std::span<const int32_t>(ids).subspan(0, 64), {4, 16}),
          Tensor::from(std::span<const int32_t>(ids).subspan(1, 64), {4, 16})};
}

TEST(GradientSync, SendsABucketAsSoonAsItIsFull) {
  const nn::GPT model = tiny();
  Twins twins;
  constexpr int64_t kBucket = 4096;
  train::GradientSync sync(twins, model.parameters(), kBucket);
  EXPECT_GT(sync.buckets(), 2);
  const train::Batch batch = batch_of_four();
  size_t told = 0, sent_before_the_last = 0;
  model.loss(batch.tokens, batch.targets, {}).backward([&](const nn::Variable& leaf) {
    sent_before_the_last = twins.sums.size();
    sync.ready(leaf);
    ++told;
  });
  EXPECT_EQ(told, model.parameters().size());
  EXPECT_GT(sent_before_the_last, 0U);
  EXPECT_EQ(std::ssize(twins.sums), sync.buckets());
  int64_t numbers = 0, all = 0;
  for (const int64_t n : twins.sums) {
    numbers += n;
    EXPECT_LE(n * 4, kBucket);
  }
  for (const nn::Parameter& p : model.parameters()) all += p.value.value().numel();
  EXPECT_EQ(numbers, all);
}

TEST(GradientSync, ATiedMatrixWaitsForItsLastUse) {
  const nn::GPT model = tiny();  // its embedding is its head
  const train::Batch batch = batch_of_four();
  std::vector<std::vector<float>> when_told;
  std::vector<nn::Variable> leaves;
  model.loss(batch.tokens, batch.targets, {}).backward([&](const nn::Variable& leaf) {
    leaves.push_back(leaf);
    when_told.push_back(leaf.grad().to_vector<float>());
  });
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(when_told[i], leaves[i].grad().to_vector<float>()) << i;
  }
}

TEST(GradientSync, TwoWorkersWithOneBatchTakeTheStepOfOne) {
  const train::Batch batches[] = {batch_of_four()};
  configs::TrainConfig recipe;
  recipe.optimizer = configs::OptimizerKind::adamw;
  recipe.lr = 0.01;
  const nn::GPT one = tiny(), both = tiny();
  train::Optimizer first(recipe, one.parameters(), DType::f32),
      second(recipe, both.parameters(), DType::f32);
  Twins twins;
  train::GradientSync sync(twins, both.parameters());
  for (int64_t step = 1; step <= 3; ++step) {
    const auto a = train_step(one, first, batches, {.step = step, .clip_norm = 0.1});
    const auto b =
        train_step(both, second, batches, {.step = step, .clip_norm = 0.1, .sync = &sync});
    EXPECT_DOUBLE_EQ(a.loss, b.loss);
    EXPECT_DOUBLE_EQ(a.gradient_norm, b.gradient_norm);
  }
  for (size_t i = 0; i < one.parameters().size(); ++i) {
    EXPECT_EQ(one.parameters()[i].value.value().to_vector<float>(),
              both.parameters()[i].value.value().to_vector<float>());
  }
}

TEST(GradientSync, WeightsThatDifferAreNoticed) {
  const nn::GPT model = tiny();
  Twins twins;
  train::require_same_weights(twins, model.parameters(), 5);
  twins.differ = true;
  const std::string message =
      message_of<Error>([&] { train::require_same_weights(twins, model.parameters(), 5); });
  EXPECT_NE(message.find("of worker 1 is not that of worker 0 after step 5"), std::string::npos);
}

TEST(ShareOfStep, DividesSequencesInBatchesThatFit) {
  const auto share = [](int64_t batch, int64_t accumulation, int64_t workers) {
    const train::Share s = train::share_of_step(batch, accumulation, workers);
    return std::pair(s.size, s.micros);
  };
  EXPECT_EQ(share(16, 1, 1), std::pair(int64_t{16}, int64_t{1}));
  EXPECT_EQ(share(16, 4, 1), std::pair(int64_t{16}, int64_t{4}));
  EXPECT_EQ(share(16, 4, 2), std::pair(int64_t{16}, int64_t{2}));
  EXPECT_EQ(share(16, 1, 4), std::pair(int64_t{4}, int64_t{1}));
  EXPECT_EQ(share(4, 3, 2), std::pair(int64_t{2}, int64_t{3}));
  EXPECT_EQ(share(2, 2, 4), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_NE(message_of([] { train::share_of_step(3, 1, 2); }).find("3 sequences a step"),
            std::string::npos);
}

}  // namespace
}  // namespace headroom::testing
