// headroom convert, as it is typed.
#include <gtest/gtest.h>

#include "cli_run.h"
#include "train_run.h"

namespace headroom::testing {
namespace {

TEST(ConvertCommand, PoolsARunThatTrainThenContinues) {
  const Workplace place;
  configs::Config config = place.config();
  config.model.n_kv_head = 4;
  Recorder nobody;
  place.train(config, "mha", nobody);
  const std::string run = (place.folder / "mha").string(), out = (place.folder / "kv1").string();
  const auto made =
      headroom_json({"convert", run, "--n-kv-head", "1", "--out", out, "--steps", "3"});
  EXPECT_EQ(made.at("n_kv_head_before"), 4);
  EXPECT_EQ(made.at("n_kv_head"), 1);
  EXPECT_EQ(made.at("steps"), 3);
  EXPECT_EQ(made.at("cache_bytes_per_token_before"), 2 * 2 * 4 * 4 * 4);  // layers, K and V, f32
  EXPECT_EQ(made.at("cache_bytes_per_token"), 2 * 2 * 1 * 4 * 4);
  EXPECT_NEAR(headroom_json({"eval", out}).at("loss_nats").get<double>(),
              made.at("pooled_loss_nats").get<double>(), 1e-6);
  EXPECT_EQ(headroom_json({"train", out + "/config.yaml", "--out", out, "--resume"}).at("step"), 3);

  EXPECT_NE(headroom_refusal({"convert", run, "--n-kv-head", "2", "--out", out})
                .find("is not empty; the converted run wants a folder of its own"),
            std::string::npos);
  const std::string three = out + "-3";
  EXPECT_NE(headroom_refusal({"convert", run, "--n-kv-head", "3", "--out", three})
                .find("--n-kv-head is 3 and the model of"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(three));
}

}  // namespace
}  // namespace headroom::testing
