// Runs that stop and go on: bit for bit the run that never stopped (TRN-08), and refusals of what
// can't be gone on with (CKP-09).
#include <gtest/gtest.h>

#include "configs/print.h"
#include "tensor/safetensors.h"
#include "train/run_folder.h"
#include "train_run.h"

namespace headroom::testing {

namespace fs = std::filesystem;

class Resume : public ::testing::TestWithParam<configs::OptimizerKind> {
 protected:
  configs::Config config() const {
    configs::Config c = work.config();
    c.train.optimizer = GetParam();
    c.model.dropout = 0.1;
    return c;
  }
  std::string bytes(const std::string& run, const char* file) const {
    return read_file(work.folder / run / file);
  }
  Workplace work;
};

TEST_P(Resume, FromAnyStepGivesTheSameBytes) {
  Recorder recorder;
  work.train(config(), "straight", recorder);
  for (const std::vector<int64_t>& stops : {std::vector<int64_t>{1}, {10}, {19}, {7, 13}, {4, 5}}) {
    const std::string run = fmt::format("stopped_{}", fmt::join(stops, "_"));
    bool resume = false;
    for (const int64_t stop : stops) {
      Recorder part;
      part.stop_at = stop;
      const train::TrainResult result = work.train(config(), run, part, resume);
      EXPECT_TRUE(result.interrupted);
      EXPECT_EQ(result.step, stop);
      EXPECT_EQ(part.saves.back(), stop);
      resume = true;
    }
    Recorder rest;
    const train::TrainResult result = work.train(config(), run, rest, true);
    EXPECT_FALSE(result.interrupted);
    EXPECT_EQ(rest.steps.front().step, stops.back() + 1);
    EXPECT_EQ(bytes(run, train::kLastFile), bytes("straight", train::kLastFile)) << run;
    EXPECT_EQ(bytes(run, train::kBestFile), bytes("straight", train::kBestFile)) << run;
    EXPECT_EQ(metrics_of(work.folder / run), metrics_of(work.folder / "straight")) << run;
  }
}

TEST_P(Resume, AcrossTheEndOfAPassGivesTheSameBytes) {
  configs::Config c = config();
  c.data.order = configs::Order::sequential;
  Recorder straight;
  work.train(c, "straight", straight);
  // 2700 training bytes are 168 sequences; 20 steps of 16 are two passes.
  c.train.batch_size = 16;
  Recorder longer;
  work.train(c, "longer", longer);
  ASSERT_EQ(longer.start.sequences_per_pass, 168);
  int64_t boundary = 0;
  for (const train::Progress& p : longer.steps) {
    boundary = p.pass == 1 ? p.step : boundary;
  }
  ASSERT_EQ(boundary, 10);
  Recorder part, rest;
  part.stop_at = boundary;
  work.train(c, "stopped", part);
  work.train(c, "stopped", rest, true);
  EXPECT_EQ(rest.steps.front().pass, 2);
  EXPECT_EQ(bytes("stopped", train::kLastFile), bytes("longer", train::kLastFile));
}

INSTANTIATE_TEST_SUITE_P(Both, Resume,
                         ::testing::Values(configs::OptimizerKind::adamw,
                                           configs::OptimizerKind::muon),
                         [](const auto& each) { return std::string(name_of(each.param)); });

class Refusal : public ::testing::Test {
 protected:
  void SetUp() override {
    Recorder recorder;
    recorder.stop_at = 15;  // evaluated at 10, so best is of step 10
    work.train(work.config(), "run", recorder);
    ASSERT_EQ(recorder.saves.back(), 15);
  }
  std::string resume(const configs::Config& config) {
    return message_of([&] {
      Recorder recorder;
      work.train(config, "run", recorder, true);
    });
  }
  std::string resume() { return resume(work.config()); }
  fs::path part(const char* name) const { return work.folder / "run" / name; }

  Workplace work;
};

TEST_F(Refusal, AMissingPartIsNamed) {
  for (const char* name : {"config.yaml", "tokenizer.json", "best.safetensors"}) {
    const std::string kept = read_file(part(name));
    fs::remove(part(name));
    EXPECT_NE(resume().find(name), std::string::npos) << name << ": " << resume();
    write_file(part(name), "");
    EXPECT_NE(resume().find(name), std::string::npos) << name << " empty: " << resume();
    write_file(part(name), kept);
  }
  fs::remove(part("last.safetensors"));
  EXPECT_NE(resume().find("last.safetensors: missing"), std::string::npos) << resume();
}

TEST_F(Refusal, PartsOfAnotherStepOrRunAreNamed) {
  Recorder recorder;
  recorder.stop_at = 19;
  configs::Config other = work.config();
  other.train.seed = 2;
  work.train(other, "other", recorder);
  const auto theirs = [&](const char* name) { return work.folder / "other" / name; };
  const auto with = [&](const char* name, const std::string& bytes) {
    const std::string kept = read_file(part(name));
    write_file(part(name), bytes);
    const std::string message = resume();
    write_file(part(name), kept);
    return message;
  };
  EXPECT_NE(with("best.safetensors", read_file(theirs("best.safetensors")))
                .find("best.safetensors: does not belong"),
            std::string::npos);
  EXPECT_NE(with("config.yaml", read_file(theirs("config.yaml"))).find("config.yaml: does not"),
            std::string::npos);
  EXPECT_NE(with("best.safetensors", read_file(part("last.safetensors"))).find("is of step 15"),
            std::string::npos);
}

TEST_F(Refusal, AnotherTokenizerOrTextIsNamed) {
  write_file(work.corpus, small_text(3000) + "z");
  EXPECT_NE(resume().find("is not the text"), std::string::npos) << resume();
  write_file(work.corpus, small_text(3000));
  Recorder recorder;
  configs::Config bytes = work.config();
  bytes.data.tokenizer = configs::TokenizerKind::byte;
  bytes.train.steps = 0;
  work.train(bytes, "bytes", recorder);
  fs::copy_file(work.folder / "bytes" / "tokenizer.json", part("tokenizer.json"),
                fs::copy_options::overwrite_existing);
  EXPECT_NE(resume().find("tokenizer.json: is not the tokenizer"), std::string::npos) << resume();
}

TEST_F(Refusal, AChangedConfigIsNamedByKey) {
  configs::Config config = work.config();
  config.train.threads = 2;  // may change
  config.train.deterministic = false;
  config.sweep.seeds = {5};
  config.train.lr = 0.01;
  EXPECT_NE(resume(config).find("train.lr is 0.02 in the run and 0.01 in the config given"),
            std::string::npos)
      << resume(config);
  config.train.lr = work.config().train.lr;
  EXPECT_EQ(resume(config), "");
}

/// A run goes on wherever it is asked to, and says that it moved.
TEST_F(Refusal, AnotherDeviceIsNone) {
  configs::Config elsewhere = work.config();
  elsewhere.train.device = configs::DeviceKind::cuda;
  write_file(part("config.yaml"), configs::to_yaml(elsewhere));
  Recorder rest;
  EXPECT_EQ(work.train(work.config(), "run", rest, true).step, 20);
  ASSERT_FALSE(rest.notes.empty());
  EXPECT_NE(rest.notes[0].find("train.device was cuda so far and is cpu from step 16 on"),
            std::string::npos)
      << rest.notes[0];
  EXPECT_NE(read_file(part("config.yaml")).find("device: cpu"), std::string::npos);
  Recorder still;
  work.train(work.config(), "run", still, true);
  EXPECT_TRUE(still.notes.empty());
}

TEST_F(Refusal, WeightsAloneCantBeResumed) {
  const SafetensorsFile file(part("last.safetensors"));
  std::vector<std::pair<std::string, Tensor>> weights;
  for (const auto& [name, info] : file.tensors()) {
    if (!name.starts_with("optimizer.")) weights.emplace_back(name, file.read(name));
  }
  write_safetensors(part("last.safetensors"), weights, file.metadata());
  EXPECT_NE(resume().find("holds weights only"), std::string::npos) << resume();
  EXPECT_NE(resume().find("another --out"), std::string::npos);
  write_safetensors(part("last.safetensors"), weights, {});
  EXPECT_NE(resume().find("no run of headroom wrote it"), std::string::npos) << resume();
}

TEST_F(Refusal, AWeightThatIsNoNumberIsNamed) {
  const SafetensorsFile file(part("last.safetensors"));
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, info] : file.tensors()) tensors.emplace_back(name, file.read(name));
  for (auto& [name, tensor] : tensors) {
    if (name == "model.layers.1.mlp.up_proj.weight") {
      tensor.data<float>()[3] = std::nanf("");
    }
  }
  write_safetensors(part("last.safetensors"), tensors, file.metadata());
  EXPECT_NE(resume().find("model.layers.1.mlp.up_proj.weight holds a NaN"), std::string::npos)
      << resume();
}

TEST_F(Refusal, TrainingIntoARunNeedsResume) {
  const auto again = [&](const configs::Config& config) {
    return message_of([&] {
      Recorder recorder;
      work.train(config, "run", recorder, false);
    });
  };
  EXPECT_NE(again(work.config()).find("stands at step 15 of 20: --resume"), std::string::npos);
  EXPECT_EQ(resume(), "");
  EXPECT_NE(again(work.config()).find("finished (step 20)"), std::string::npos);
}

TEST_F(Refusal, AFinishedRunResumedSaysItsResultAgain) {
  Recorder rest, nothing;
  const train::TrainResult first = work.train(work.config(), "run", rest, true);
  const train::TrainResult again = work.train(work.config(), "run", nothing, true);
  EXPECT_TRUE(nothing.steps.empty());
  EXPECT_EQ(again.final_loss, first.final_loss);
  EXPECT_EQ(again.best_loss, first.best_loss);
  EXPECT_EQ(again.step, 20);
}

TEST_F(Refusal, AKillBetweenTheTwoCheckpointsHeals) {
  Recorder rest;
  work.train(work.config(), "run", rest, true);
  ASSERT_EQ(rest.evaluations.size(), 1U);
  const std::string best = read_file(part("best.safetensors"));
  ASSERT_EQ(best, read_file(part("last.safetensors"))) << "step 20 is the best one";
  fs::remove(part("best.safetensors"));
  EXPECT_EQ(train::load_run(work.folder / "run").checkpoint, part("last.safetensors"));
  EXPECT_EQ(resume(), "");
  EXPECT_EQ(read_file(part("best.safetensors")), best);
}

TEST(ResumeOfNothing, BeginsAtStepZeroAndSaysSo) {
  const Workplace work;
  Recorder recorder;
  configs::Config config = work.config();
  config.train.steps = 2;
  EXPECT_EQ(work.train(config, "run", recorder, true).step, 2);
  ASSERT_FALSE(recorder.notes.empty());
  EXPECT_NE(recorder.notes[0].find("beginning at step 0"), std::string::npos);
}

}  // namespace headroom::testing
