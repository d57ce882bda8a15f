// How often the host waits for the device, and asks it for something: a step that waits in its
// middle leaves the device idle.
#include <gtest/gtest.h>

#include "experiments/timed_model.h"
#include "kernels/cuda/cuda_allocator.h"
#include "kernels/cuda/runtime.h"
#include "tests/simt/workers.h"
#include "tests/train_run.h"
#include "train/step.h"

namespace headroom::testing {
namespace {

configs::ModelConfig four_layers() {
  configs::ModelConfig model = small_config({}).model;
  model.n_layer = 4;
  model.dropout = 0.1;
  return model;
}

std::vector<train::Batch> batches_of(int64_t count) {
  std::vector<train::Batch> batches;
  for (int64_t i = 0; i < count; ++i) {
    const auto ids = [&](int32_t first) {
      std::vector<int32_t> values;
      for (int32_t n = 0; n < 32; ++n) {
        values.push_back((first + n) % 7);
      }
      return Tensor::from(values, {2, 16});
    };
    batches.push_back({ids(static_cast<int32_t>(i)), ids(static_cast<int32_t>(i) + 1)});
  }
  return batches;
}

/// It reads the losses and the norm of the gradient together, at its end.
TEST(Waits, ATrainingStepWaitsOnce) {
  const nn::GPT model(four_layers(), 7, nn::Scope{.seed = 1, .device = gpu()});
  const nn::GPT on_cpu(four_layers(), 7, nn::Scope{.seed = 1});
  configs::TrainConfig recipe;
  recipe.optimizer = configs::OptimizerKind::muon;
  train::Optimizer optimizer(recipe, model.parameters(), DType::f32),
      cpu_optimizer(recipe, on_cpu.parameters(), DType::f32);
  const std::vector<train::Batch> batches = batches_of(5);
  for (int64_t step = 1; step <= 2; ++step) {
    const train::StepOptions options{.step = step, .clip_norm = 1.0};
    const unsigned before = simt::waits();
    const train::StepResult there = train_step(model, optimizer, batches, options);
    EXPECT_EQ(simt::waits() - before, 1U) << "step " << step;
    const train::StepResult here = train_step(on_cpu, cpu_optimizer, batches, options);
    EXPECT_NEAR(there.loss, here.loss, 1e-4);
    EXPECT_NEAR(there.gradient_norm / here.gradient_norm, 1, 1e-3);
  }
}

/// That of several workers too, whatever their buckets: before it copies what it reads, when it
/// looks whether the others live, and after.
TEST(Waits, AStepOfTwoWorkersWaitsAtItsEnd) {
  const auto train = [](kernels::Communicator& workers) {
    const nn::GPT model(four_layers(), 7, nn::Scope{.seed = 1, .device = gpu()});
    train::Optimizer optimizer({}, model.parameters(), DType::f32);
    train::GradientSync sync(workers, model.parameters(), 1000);
    const std::vector<train::Batch> batches = batches_of(2);
    std::vector<unsigned> waits;
    for (int64_t step = 1; step <= 2; ++step) {
      const unsigned before = simt::waits();
      train_step(model, optimizer, batches, {.step = step, .clip_norm = 1.0, .sync = &sync});
      waits.push_back(simt::waits() - before);
    }
    return waits == std::vector<unsigned>{2, 2} ? 0 : 1;
  };
  EXPECT_EQ(meet(2, train), (std::vector<int>{0, 0}));
}

/// 1024 sequences of 512 tokens, and their targets.
TEST(Waits, ALargeBatchIsCopiedWithoutOne) {
  kernels::cuda::CudaAllocator memory;
  const Tensor ids = Tensor::zeros({1024, 512}, DType::i32);
  const unsigned before = simt::waits();
  for (int copy = 0; copy < 2; ++copy) {
    memory.copy(memory.allocate(ids.nbytes()), gpu(), ids.raw(), kCpu, ids.nbytes());
  }
  EXPECT_EQ(simt::waits(), before);
  kernels::cuda::synchronize();  // what is being copied is about to be given back
}

/// Who waits for the GPU, which may wait for another worker, looks after that one: for an area of
/// pinned memory too, and for memory to come free.
TEST(Waits, AreNoneWithoutALookAtTheOtherWorkers) {
  kernels::cuda::CudaAllocator memory;
  int looks = 0;
  kernels::cuda::watch_while_waiting([&looks] { ++looks; });
  const Tensor long_copy = Tensor::zeros({int64_t{3} << 20}, DType::f32);  // three areas
  memory.copy(memory.allocate(long_copy.nbytes()), gpu(), long_copy.raw(), kCpu,
              long_copy.nbytes());
  EXPECT_GT(looks, 0);
  looks = 0;
  EXPECT_THROW(memory.allocate(size_t{1} << 60), Error);
  EXPECT_GT(looks, 0);
  kernels::cuda::watch_while_waiting({});
  kernels::cuda::synchronize();
}

/// What a benchmark times is what generation does: a recorded step, launched whole.
TEST(Launches, ABenchmarkOfDecodingRepeatsARecordedStep) {
  const nn::GPT model(four_layers(), 7, nn::Scope{.seed = 1, .device = gpu()});
  experiments::TimedDecode decode(model, 2, 12, DType::f32);
  decode.fill(9);
  for (unsigned step = 1; step <= 3; ++step) {
    const unsigned before = simt::graph_launches();
    decode.step_ms();
    EXPECT_EQ(simt::graph_launches() - before, 1U) << "step " << step;
  }
}

}  // namespace
}  // namespace headroom::testing
