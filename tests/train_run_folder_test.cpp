// Reading a run for evaluation and generation: which checkpoint, and whether its parts belong
// together (CKP-06, CKP-09).
#include "train/run_folder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "configs/load.h"
#include "configs/print.h"
#include "tensor/safetensors.h"
#include "train/precision.h"
#include "train/time_left.h"
#include "train_run.h"

namespace headroom::testing {

namespace fs = std::filesystem;

class RunFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    Recorder recorder;
    recorder.stop_at = 15;  // best is of step 10, last of step 15
    work.train(work.config(), "run", recorder);
    losses = recorder.evaluations;
  }
  fs::path part(const char* name) const { return work.folder / "run" / name; }
  std::string refusal(const fs::path& run) const {
    return message_of([&] { train::load_run(run); });
  }
  std::string refusal() const { return refusal(work.folder / "run"); }
  double loss(const train::LoadedRun& run) const {
    const text::Corpus corpus = text::load_corpus(work.corpus, 0.1);
    return train::evaluate(*run.model, text::tokenize(corpus, text::Split::val, *run.tokenizer),
                           *run.tokenizer, {.batch_size = 4})
        .loss_nats;
  }

  Workplace work;
  std::map<int64_t, train::Evaluation> losses;
};

TEST_F(RunFolder, GivesTheBestCheckpointOrTheOneAskedFor) {
  const train::LoadedRun best = train::load_run(work.folder / "run");
  EXPECT_EQ(best.checkpoint, part("best.safetensors"));
  EXPECT_EQ(best.state->step, 10);
  EXPECT_EQ(loss(best), losses.at(10).loss_nats);
  EXPECT_EQ(best.state->best_loss, losses.at(10).loss_nats);
  EXPECT_EQ(train::load_run(part("last.safetensors")).state->step, 15);
}

TEST_F(RunFolder, GivesTheLastOneBeforeTheFirstEvaluation) {
  Recorder recorder;
  recorder.stop_at = 6;
  work.train(work.config(), "young", recorder);
  EXPECT_EQ(train::load_run(work.folder / "young").state->step, 6);
}

TEST_F(RunFolder, WorksWithTheBestCheckpointAlone) {
  fs::remove(part("last.safetensors"));
  fs::remove(part("metrics.jsonl"));
  EXPECT_EQ(train::load_run(work.folder / "run").state->step, 10);
}

TEST_F(RunFolder, ADamagedOrMissingPartIsNamed) {
  for (const char* name : {"config.yaml", "tokenizer.json", "best.safetensors"}) {
    const std::string kept = read_file(part(name));
    fs::remove(part(name));
    EXPECT_NE(refusal().find(name), std::string::npos) << name << ": " << refusal();
    write_file(part(name), "");
    EXPECT_NE(refusal().find(name), std::string::npos) << name << " empty: " << refusal();
    write_file(part(name), kept);
  }
  fs::copy_file(part("last.safetensors"), part("best.safetensors"),
                fs::copy_options::overwrite_existing);
  EXPECT_NE(refusal().find("best.safetensors: is of step 15"), std::string::npos) << refusal();
  fs::remove(part("best.safetensors"));
  fs::remove(part("last.safetensors"));
  EXPECT_NE(refusal().find("nothing has been saved"), std::string::npos) << refusal();
  EXPECT_NE(refusal(work.folder / "nowhere").find("no such run"), std::string::npos);
}

TEST_F(RunFolder, AnotherModelsConfigIsRefusedByItsFirstKey) {
  const auto with = [&](const std::function<void(configs::Config&)>& change) {
    configs::Config config = work.config();
    change(config);
    write_file(part("config.yaml"), configs::to_yaml(config));
    return refusal();
  };
  EXPECT_NE(with([](auto& c) { c.model.n_kv_head = 4; }).find("model.n_kv_head is 2 in"),
            std::string::npos);
  EXPECT_NE(with([](auto& c) { c.model.n_layer = 3; }).find("model.n_layer is 2 in"),
            std::string::npos);
  EXPECT_NE(with([](auto& c) { c.model.n_embd = 8; }).find("model.n_embd is 16 in"),
            std::string::npos);
  // Shapes would not betray this one.
  EXPECT_NE(with([](auto& c) { c.model.rope_base = 500; }).find("model.rope_base is 10000 in"),
            std::string::npos);
  // What doesn't change the model's function may differ.
  EXPECT_EQ(with([](auto& c) {
              c.model.dropout = 0.5;
              c.train.batch_size = 9;
            }),
            "");
}

TEST_F(RunFolder, AnOverrideThatDoesntFitIsRefusedByItsSetting) {
  const std::string overrides[] = {"model.n_kv_head=4"};
  const std::string message = message_of([&] { train::load_run(work.folder / "run", overrides); });
  EXPECT_NE(message.find("n_kv_head is 2 in the checkpoint and 4 in the config"), std::string::npos)
      << message;
}

TEST_F(RunFolder, AnotherTokenizerIsRefused) {
  std::vector<std::string> notes;
  text::make_tokenizer("byte", 0, "", notes)->save(part("tokenizer.json"));
  EXPECT_NE(refusal().find("tokenizer.json: is not the tokenizer"), std::string::npos);
}

TEST_F(RunFolder, WeightsOfAnyFloatingTypeGiveTheSameLoss) {
  const SafetensorsFile file(part("best.safetensors"));
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    std::vector<std::pair<std::string, Tensor>> weights;
    for (const auto& [name, info] : file.tensors()) {
      if (name.starts_with("optimizer.")) continue;
      weights.emplace_back(name, Tensor::empty(info.shape, dtype));
      kernels::backend(kCpu).cast(file.read(name), weights.back().second);
    }
    write_safetensors(part("other.safetensors"), weights, {});
    const train::LoadedRun run = train::load_run(part("other.safetensors"));
    EXPECT_FALSE(run.state.has_value());
    EXPECT_EQ(run.notes.size(), 1U);
    EXPECT_NEAR(loss(run), losses.at(10).loss_nats, 0.005 * losses.at(10).loss_nats);
  }
}

TEST_F(RunFolder, WeightsThatAreNoNumbersAreRefused) {
  const SafetensorsFile file(part("best.safetensors"));
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, info] : file.tensors()) tensors.emplace_back(name, file.read(name));
  for (auto& [name, tensor] : tensors) {
    if (name == "model.norm.weight") tensor.data<float>()[0] = std::nanf("");
  }
  write_safetensors(part("best.safetensors"), tensors, file.metadata());
  EXPECT_NE(refusal().find("model.norm.weight holds a NaN"), std::string::npos) << refusal();
}

TEST_F(RunFolder, DamagedMetadataIsNamedByField) {
  const SafetensorsFile file(part("best.safetensors"));
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, info] : file.tensors()) tensors.emplace_back(name, file.read(name));
  const auto with = [&](const char* key, const char* value) {
    auto metadata = file.metadata();
    metadata.erase(key);
    if (value != nullptr) metadata[key] = value;
    write_safetensors(part("best.safetensors"), tensors, metadata);
    return refusal();
  };
  EXPECT_NE(with("step", nullptr).find("its metadata lacks step"), std::string::npos);
  EXPECT_NE(with("step", "ten").find("step in its metadata must be a number: got ten"),
            std::string::npos);
  EXPECT_NE(with("best_step", "1.5").find("best_step in its metadata must be a whole number"),
            std::string::npos);
  EXPECT_NE(with("headroom_run", "99").find("format 99"), std::string::npos);
}

TEST(Vocabulary, IsTheTokenizersOrAtLeastThat) {
  std::vector<std::string> notes;
  const auto chars = text::make_tokenizer("char", 0, "abc", notes);
  configs::ModelConfig model;
  EXPECT_EQ(train::model_vocabulary(model, *chars), 3);
  model.vocab_size = 8;
  EXPECT_EQ(train::model_vocabulary(model, *chars), 8);
  model.vocab_size = 2;
  EXPECT_NE(message_of([&] { train::model_vocabulary(model, *chars); }).find("has 3 tokens"),
            std::string::npos);
}

TEST(Precision, AutoFollowsTheDeviceAndSaysSo) {
  using configs::Precision;
  EXPECT_EQ(train::choose_precision(Precision::automatic, kCpu, true).dtype, DType::bf16);
  EXPECT_EQ(train::choose_precision(Precision::automatic, kCpu, false).dtype, DType::f32);
  EXPECT_EQ(train::choose_precision(Precision::fp32, kCpu, true).dtype, DType::f32);
  const auto emulated = train::choose_precision(Precision::bf16, kCpu, false);
  EXPECT_EQ(emulated.dtype, DType::bf16);
  EXPECT_NE(emulated.sentence.find("fp32 arithmetic"), std::string::npos);
  // A GPU's bf16 is its own, whatever the processor beside it has.
  constexpr Device kGpu{Device::Type::cuda, 0};
  const auto gpu = train::choose_precision(Precision::automatic, kGpu, false);
  EXPECT_EQ(gpu.dtype, DType::bf16);
  EXPECT_EQ(gpu.sentence, "bf16 (auto: the GPU computes in bf16)");
  EXPECT_EQ(train::choose_precision(Precision::bf16, kGpu, false).sentence, "bf16");
  EXPECT_EQ(train::choose_precision(Precision::fp32, kGpu, true).dtype, DType::f32);
}

TEST(TimeLeft, CountsStepsEvaluationsAndSaves) {
  train::TimeLeft left(4000, 3.0);
  left.step_took(10);  // the first one pays for more than itself
  EXPECT_DOUBLE_EQ(left.seconds(5, 0, 0), 50);
  for (int i = 0; i < 4; ++i) left.step_took(2);
  EXPECT_DOUBLE_EQ(left.tokens_per_second(), 2000);
  EXPECT_DOUBLE_EQ(left.seconds(5, 2, 2), 5 * 2 + 2 * (2 * 3.0 / 3));
  left.evaluation_took(7);
  left.save_took(1);
  EXPECT_DOUBLE_EQ(left.seconds(5, 2, 3), 5 * 2 + 2 * 7 + 3 * 1);
}

TEST(TimeLeft, KnowsHowManyOccasionsAreLeft) {
  EXPECT_EQ(train::occasions_left(0, 100, 25, true), 4);
  EXPECT_EQ(train::occasions_left(50, 100, 25, true), 2);
  EXPECT_EQ(train::occasions_left(50, 90, 25, true), 2);  // 75 and 90
  EXPECT_EQ(train::occasions_left(50, 90, 25, false), 1);
  EXPECT_EQ(train::occasions_left(0, 90, 0, true), 1);
  EXPECT_EQ(train::occasions_left(90, 90, 25, true), 0);
}

}  // namespace headroom::testing
