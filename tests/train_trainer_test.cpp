// The loop: what is counted, what accumulation, dropout and evaluation may not change, what stops
// it, and whether it learns (TRN-02, 03, 05, 07, 10; CKP-07).
#include "train/trainer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "golden.h"
#include "tensor/safetensors.h"
#include "train/run_folder.h"
#include "train/step.h"
#include "train_run.h"

namespace headroom::testing {

namespace {

/// The largest difference of weights between two runs, over the largest weight, per tensor.
double weight_difference(const Workplace& work, const std::string& a, const std::string& b) {
  const SafetensorsFile left(work.folder / a / "last.safetensors"),
      right(work.folder / b / "last.safetensors");
  double worst = 0;
  for (const auto& [name, info] : left.tensors()) {
    if (!name.starts_with("optimizer.")) {
      worst = std::max(worst, max_relative_error(left.read(name), right.read(name)));
    }
  }
  return worst;
}

std::vector<int64_t> keys(const std::map<int64_t, train::Evaluation>& evaluations) {
  std::vector<int64_t> all;
  for (const auto& [step, e] : evaluations) all.push_back(step);
  return all;
}

}  // namespace

TEST(Trainer, CountsUpdatesWhateverTheAccumulation) {
  const Workplace work;
  std::vector<double> rates;
  for (const int64_t accumulation : {1, 4, 32}) {
    configs::Config config = work.config();
    config.train.batch_size = 1;
    config.train.grad_accumulation = accumulation;
    config.train.eval_every = 5;
    config.train.save_every = 10;
    Recorder r;
    const std::string run = fmt::format("run{}", accumulation);
    EXPECT_EQ(work.train(config, run, r).tokens, 20 * accumulation * 16);
    ASSERT_EQ(r.steps.size(), 20U);
    EXPECT_EQ(r.steps.back().step, 20);
    EXPECT_EQ(keys(r.evaluations), (std::vector<int64_t>{5, 10, 15, 20}));
    EXPECT_EQ(r.saves, (std::vector<int64_t>{5, 10, 15, 20}));
    std::vector<double> these;
    for (const train::Progress& p : r.steps) these.push_back(p.rate);
    EXPECT_TRUE(rates.empty() || rates == these);
    rates = these;
    const auto state = train::read_state(SafetensorsFile(work.folder / run / "last.safetensors"));
    EXPECT_EQ(state->step, 20);
    EXPECT_EQ(state->sequences, 20 * accumulation);
  }
}

TEST(Trainer, SavesBetweenEvaluationsAndEvaluatesTheLastStep) {
  const Workplace work;
  configs::Config config = work.config();
  config.train.steps = 17;
  config.train.eval_every = 8;
  config.train.save_every = 5;
  Recorder r;
  work.train(config, "run", r);
  EXPECT_EQ(keys(r.evaluations), (std::vector<int64_t>{8, 16, 17}));
  EXPECT_EQ(r.saves, (std::vector<int64_t>{5, 8, 10, 15, 16, 17}));
}

TEST(Trainer, NoStepsIsAnEvaluation) {
  const Workplace work;
  configs::Config config = work.config();
  config.train.steps = 0;
  Recorder r;
  const train::TrainResult result = work.train(config, "run", r);
  // Untrained: every character is as likely as any other (TRN-10 c).
  const double uniform = std::log(static_cast<double>(r.start.vocab_size));
  EXPECT_NEAR(result.final_loss, uniform, 0.05 * uniform);
  EXPECT_EQ(keys(r.evaluations), std::vector<int64_t>{0});
}

class Accumulation : public ::testing::TestWithParam<configs::OptimizerKind> {};

TEST_P(Accumulation, EqualsTheLargeBatch) {
  const Workplace work;
  Recorder whole;
  for (const auto& [batch, accumulation] : {std::pair<int64_t, int64_t>{32, 1}, {8, 4}, {1, 32}}) {
    configs::Config config = work.config();
    config.train.optimizer = GetParam();
    if (GetParam() == configs::OptimizerKind::adamw) config.train.lr = 0.003;
    config.train.clip_norm = 0.5;  // below most norms: clipping acts
    config.train.batch_size = batch;
    config.train.grad_accumulation = accumulation;
    Recorder r;
    const std::string run = fmt::format("run{}", accumulation);
    work.train(config, run, r);
    if (accumulation == 1) {
      whole = r;
      continue;
    }
    for (size_t i = 0; i < r.steps.size(); ++i) {
      EXPECT_NEAR(r.steps[i].loss, whole.steps[i].loss, 1e-5 * whole.steps[i].loss) << i;
      EXPECT_NEAR(r.steps[i].gradient_norm, whole.steps[i].gradient_norm,
                  1e-3 * whole.steps[i].gradient_norm);
    }
    EXPECT_LE(weight_difference(work, "run1", run), 5e-4);
  }
  EXPECT_GT(whole.steps[5].gradient_norm, 0.5);
}

INSTANTIATE_TEST_SUITE_P(Both, Accumulation,
                         ::testing::Values(configs::OptimizerKind::adamw,
                                           configs::OptimizerKind::muon),
                         [](const auto& each) { return std::string(name_of(each.param)); });

TEST(Trainer, EvaluatingChangesNothing) {
  const Workplace work;
  configs::Config config = work.config();
  config.model.dropout = 0.5;
  Recorder often, seldom;
  config.train.eval_every = 1;
  work.train(config, "often", often);
  config.train.eval_every = 100;
  work.train(config, "seldom", seldom);
  EXPECT_EQ(weight_difference(work, "often", "seldom"), 0);
  // Nor does dropout touch an evaluation.
  std::vector<double> losses;
  const std::string dropouts[] = {"model.dropout=0.0", "model.dropout=0.5", "model.dropout=0.5"};
  for (const std::string& dropout : dropouts) {
    const train::LoadedRun run =
        train::load_run(work.folder / "often" / "last.safetensors", std::span(&dropout, 1));
    const text::Corpus corpus = text::load_corpus(work.corpus, 0.1);
    losses.push_back(train::evaluate(*run.model,
                                     text::tokenize(corpus, text::Split::val, *run.tokenizer),
                                     *run.tokenizer, {.batch_size = 4})
                         .loss_nats);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[1], losses[2]);
  EXPECT_EQ(losses[0], often.evaluations.at(20).loss_nats);
}

TEST(Trainer, DropoutIsOnWhileTraining) {
  const Workplace work;
  configs::Config config = work.config();
  config.train.steps = 1;
  Recorder without, with;
  work.train(config, "without", without);
  config.model.dropout = 0.5;
  work.train(config, "with", with);
  EXPECT_NE(without.steps[0].loss, with.steps[0].loss);
}

TEST(Trainer, StopsAtALossThatIsNoNumber) {
  const Workplace work;
  configs::Config config = work.config();
  config.model.mlp = configs::MlpKind::relu2;
  config.train.optimizer = configs::OptimizerKind::adamw;
  config.train.steps = 50;
  config.train.lr = 1e6;
  config.train.save_every = 1;
  config.train.eval_every = 0;
  Recorder r;
  std::string message;
  try {
    work.train(config, "run", r);
  } catch (const train::NotFinite& error) {
    message = error.what();
  }
  const auto failed = static_cast<int64_t>(r.steps.size()) + 1;
  EXPECT_NE(message.find(fmt::format("at step {}, at a rate of ", failed)), std::string::npos)
      << message;
  EXPECT_NE(message.find(fmt::format("last.safetensors keeps the weights of step {}", failed - 1)),
            std::string::npos)
      << message;
  const train::LoadedRun run = train::load_run(work.folder / "run");
  EXPECT_EQ(run.state->step, failed - 1);
}

TEST(Trainer, AFailedSaveIsNoticedAndThePreviousOneStays) {
  const Workplace work;
  configs::Config config = work.config();
  Recorder first;
  first.stop_at = 7;
  work.train(config, "run", first);
  const std::string before = read_file(work.folder / "run" / "last.safetensors");
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{before.size() / 2, before.size() / 2};  // the disk is full half-way
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Recorder rest;
    try {
      work.train(config, "run", rest, true);
    } catch (const Error& error) {
      return std::string(error.what()).find("last.safetensors") != std::string::npos ? 1 : 2;
    }
    return 0;
  });
  EXPECT_EQ(status, 1);
  EXPECT_EQ(read_file(work.folder / "run" / "last.safetensors"), before);
  for (const auto& entry : std::filesystem::directory_iterator(work.folder / "run")) {
    EXPECT_NE(entry.path().extension(), ".headroom-tmp") << entry.path();
  }
  Recorder rest, straight;
  work.train(config, "run", rest, true);
  work.train(config, "straight", straight);
  EXPECT_EQ(weight_difference(work, "run", "straight"), 0);
}

TEST(Trainer, AnUnusableFolderIsFoundBeforeTheFirstStep) {
  const Workplace work;
  Recorder r;
  EXPECT_NE(message_of([&] { work.train(work.config(), "corpus.txt", r); }).find("not a directory"),
            std::string::npos);
  const std::string below =
      message_of<Error>([&] { work.train(work.config(), "corpus.txt/run", r); });
  EXPECT_NE(below.find("each checkpoint will need"), std::string::npos) << below;
  EXPECT_TRUE(r.steps.empty());
  const std::string full =
      message_of([&] { train::require_disk(work.folder.path(), 4096, 10000); });
  EXPECT_NE(full.find("a checkpoint needs 4.0 KiB and there must be room for 3"), std::string::npos)
      << full;
  EXPECT_EQ(message_of([&] { train::require_disk(work.folder.path(), 4096, 12288); }), "");
}

TEST(Trainer, RefusedRunsLeaveNoFolder) {
  const Workplace work(10);
  Recorder r;
  EXPECT_NE(message_of([&] { work.train(work.config(), "run", r); }), "");
  EXPECT_FALSE(std::filesystem::exists(work.folder / "run"));
}

TEST(Trainer, ReadsWhatItLearned) {
  const Workplace work;
  configs::Config config = work.config();
  config.train.steps = 200;
  config.train.eval_every = 100;
  Recorder r;
  const train::TrainResult result = work.train(config, "run", r);
  EXPECT_LT(result.best_loss, 1.2) << "words of a few letters: far below log(16) = 2.8";

  // TRN-10 b: more steps at a small rate don't hurt.
  const train::LoadedRun run = train::load_run(work.folder / "run" / "last.safetensors");
  const text::Corpus corpus = text::load_corpus(work.corpus, 0.1);
  const auto val = text::tokenize(corpus, text::Split::val, *run.tokenizer);
  train::Batches batches(text::tokenize(corpus, text::Split::train, *run.tokenizer).ids,
                         {.block_size = 16, .batch_size = 4, .seed = 9});
  configs::TrainConfig gentle;
  gentle.optimizer = configs::OptimizerKind::adamw;
  gentle.lr = 1e-5;
  train::Optimizer optimizer(gentle, run.model->parameters(), DType::f32);
  for (int64_t step = 1; step <= 50; ++step) {
    const train::Batch batch[] = {batches.get(step, 0)};
    train_step(*run.model, optimizer, batch, {.step = step, .clip_norm = 1.0});
  }
  EXPECT_LT(train::evaluate(*run.model, val, *run.tokenizer, {}).loss_nats,
            1.01 * result.final_loss);
}

TEST(Trainer, OneBatchIsLearnedByHeart) {
  for (const int64_t kv_heads : {4, 2, 1}) {
    configs::ModelConfig shape = small_config("").model;
    shape.n_kv_head = kv_heads;
    shape.n_embd = 32;
    shape.given_n_ff = 64;
    shape.block_size = 32;
    const nn::GPT model(shape, 31, nn::Scope{.seed = 1});
    std::vector<int32_t> ids;
    const RandomStream stream(1, "ids");
    for (uint64_t i = 0; i < 129; ++i) ids.push_back(static_cast<int32_t>(stream.integer(i, 31)));
    const train::Batch batch[] = {
        {Tensor::from(std::span<const int32_t>(ids).subspan(0, 128), {4, 32}),
         Tensor::from(std::span<const int32_t>(ids).subspan(1, 128), {4, 32})}};
    configs::TrainConfig recipe;
    recipe.optimizer = configs::OptimizerKind::adamw;
    recipe.lr = 0.01;
    train::Optimizer optimizer(recipe, model.parameters(), DType::f32);
    double loss = 0;
    for (int64_t step = 1; step <= 500 && (step == 1 || loss >= 0.05); ++step) {
      loss = train_step(model, optimizer, batch, {.step = step, .clip_norm = 1.0}).loss;
      if (step == 1) {
        EXPECT_NEAR(loss, std::log(31.0), 0.05 * std::log(31.0));
      }
    }
    EXPECT_LT(loss, 0.05) << kv_heads;
  }
}

}  // namespace headroom::testing
