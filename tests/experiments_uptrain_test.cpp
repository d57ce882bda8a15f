// A run with its KV heads pooled: what is written, that training goes on from it, and what the
// comparison of losses holds.
#include "experiments/uptrain.h"

#include <gtest/gtest.h>

#include "experiments/convert.h"
#include "train_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

/// A multi-head run of 40 steps, trained, and one of 2 heads.
struct PoolPlace : Workplace {
  PoolPlace() {
    Recorder nobody;
    train(mha(4), "mha", nobody);
  }
  configs::Config mha(int64_t n_kv_head) const {
    configs::Config c = small_config(corpus);
    c.model.n_kv_head = n_kv_head;
    c.train.steps = 40;
    return c;
  }
};

TEST(Pooling, WritesARunAtStepZeroThatTrainingContinues) {
  const PoolPlace place;
  const auto pooled = experiments::pool_run(place.folder / "mha", 2, std::nullopt);
  EXPECT_EQ(pooled.config.train.steps, 2);         // 5 % of 40
  EXPECT_EQ(pooled.config.train.warmup_steps, 0);  // of 4
  EXPECT_EQ(pooled.original_loss, train::load_run(place.folder / "mha").state->best_loss);
  EXPECT_NE(pooled.pooled_loss, pooled.original_loss);

  const fs::path folder = place.folder / "kv2";
  experiments::write_pooled_run(pooled, folder);
  const train::LoadedRun written = train::load_run(folder);
  EXPECT_EQ(written.config.model.n_kv_head, 2);
  EXPECT_EQ(written.state->step, 0);
  EXPECT_EQ(written.state->best_loss, pooled.pooled_loss);
  Recorder recorder;
  const auto result = train::train(written.config, {.folder = folder, .resume = true}, recorder);
  EXPECT_EQ(result.step, 2);
  EXPECT_TRUE(recorder.notes.empty());  // nothing began anew
  EXPECT_EQ(recorder.start.first_step, 1);
  // Two steps from the pooled weights are nothing like two from random ones.
  Recorder fresh;
  configs::Config scratch = written.config;
  EXPECT_LT(result.final_loss, place.train(scratch, "scratch", fresh).final_loss - 0.3);
  EXPECT_EQ(experiments::pool_run(place.folder / "mha", 1, 12).config.train.steps, 12);
}

TEST(Pooling, RefusesHeadsThatDoNotDivideAndOtherTexts) {
  const PoolPlace place;
  const auto refusal = [&](int64_t heads, const std::vector<std::string>& set = {}) {
    return message_of(
        [&] { experiments::pool_run(place.folder / "mha", heads, std::nullopt, set); });
  };
  for (const int64_t heads : {3, 4, 8}) {
    EXPECT_NE(refusal(heads).find("has 4 KV heads, but it must be smaller and divide them"),
              std::string::npos);
  }
  write_file(place.folder / "other.txt", small_text(2999));
  EXPECT_NE(refusal(2, {"data.corpus=" + (place.folder / "other.txt").string()})
                .find("is not the text that"),
            std::string::npos);
  configs::Config latent = place.mha(4);
  latent.model.attention = configs::AttentionKind::mla;
  latent.train.steps = 1;
  Recorder nobody;
  place.train(latent, "latent", nobody);
  EXPECT_NE(message_of([&] {
              experiments::pool_run(place.folder / "latent", 2, std::nullopt);
            }).find("it has no KV heads to pool"),
            std::string::npos);
}

TEST(Uptraining, GoesOnWhereItStoppedAndStandsBesideARunFromScratch) {
  const PoolPlace place;
  Recorder interrupted, first, again, scratch;
  interrupted.stop_at = 1;
  const fs::path run = place.folder / "mha", kv1 = place.folder / "kv1";
  EXPECT_FALSE(experiments::uptrain(run, 1, kv1, place.folder / "none", interrupted));
  const auto result = experiments::uptrain(run, 1, kv1, place.folder / "none", first);
  ASSERT_TRUE(result);
  EXPECT_EQ(first.start.first_step, 2);
  EXPECT_EQ(result->steps, 2);
  EXPECT_FALSE(result->from_scratch);
  EXPECT_LE(result->uptrained, result->pooled);
  const double full = place.train(place.mha(1), "scratch", scratch).best_loss;
  const auto finished = experiments::uptrain(run, 1, kv1, place.folder / "scratch", again);
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->from_scratch, full);
  EXPECT_EQ(finished->uptrained, result->uptrained);
  EXPECT_TRUE(again.steps.empty());
}

}  // namespace
}  // namespace headroom::testing
