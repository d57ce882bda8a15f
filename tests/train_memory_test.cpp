// Memory of a long run (DAT-09, PRF-03), and decay where a model has everything (TRN-06).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "nn/gpt.h"
#include "tensor/allocator.h"
#include "train/optimizer.h"
#include "train_run.h"

namespace headroom::testing {

namespace {

/// Pages of this process's memory that no file backs.
int64_t private_pages() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return resident - shared;
}

struct MemoryRecorder : Recorder {
  std::vector<size_t> in_use, reserved;
  std::vector<int64_t> pages;
  void stepped(const train::Progress&) override {
    in_use.push_back(allocator(kCpu).bytes_in_use());
    reserved.push_back(allocator(kCpu).bytes_reserved());
    pages.push_back(private_pages());
  }
};

}  // namespace

TEST(TrainingMemory, StaysFlatOverStepsEvaluationsAndSaves) {
  const Workplace work;
  configs::Config config = work.config();
  config.train.steps = 600;
  config.train.eval_every = 50;
  config.train.save_every = 20;
  MemoryRecorder r;
  work.train(config, "run", r);
  ASSERT_EQ(r.in_use.size(), 600U);
  EXPECT_EQ(*std::max_element(r.in_use.begin() + 10, r.in_use.end()), r.in_use[10]);
  EXPECT_EQ(r.reserved.back(), r.reserved[110]);
#if !defined(__SANITIZE_ADDRESS__)  // which holds freed memory back
  EXPECT_LT(r.pages.back() - r.pages[110], 256) << "pages of 4 KiB";
#endif
}

TEST(Decay, IsOfMatricesAndNotOfBiasesNormsOrScales) {
  configs::ModelConfig shape = small_config("").model;
  shape.bias = configs::Bias::all;
  shape.norm = configs::Norm::layernorm;
  shape.mlp = configs::MlpKind::gelu;
  shape.position = configs::Position::learned;
  shape.qk_norm = true;
  const nn::GPT model(shape, 29, nn::Scope{.seed = 3});
  int biases = 0;
  for (const nn::Parameter& p : model.parameters()) {
    const bool bias = p.name.ends_with(".bias"), norm = p.name.find("norm") != std::string::npos;
    EXPECT_EQ(train::decays(p), !bias && !norm) << p.name;
    biases += bias ? 1 : 0;
  }
  EXPECT_EQ(biases, 2 * (2 + 4 + 2) + 1);  // two norms, four projections, two of the MLP; the last
}

}  // namespace headroom::testing
