// A config as JSON, and the words suggested for a mistyped one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/nearest.h"
#include "configs/print.h"

namespace headroom::configs {
namespace {

TEST(Json, KeepsTypesAndOrder) {
  Config c;
  c.model.n_kv_head = 4;
  const nlohmann::ordered_json json = to_json(c);
  EXPECT_EQ(json.at("model").at("n_kv_head").get<int>(), 4);
  EXPECT_EQ(json.at("model").at("position"), "rope");
  EXPECT_EQ(json.at("model").at("tie_embeddings"), true);
  EXPECT_EQ(json.at("train").at("lr").get<double>(), 0.02);
  EXPECT_EQ(json.at("sweep").at("seeds").get<std::vector<int>>(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(json.begin().key(), "model");
  EXPECT_EQ(json.at("model").begin().key(), "n_layer");
}

TEST(Nearest, CountsEditsWithSwapsAsOne) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("train", "train"), 0);
  EXPECT_EQ(edit_distance("trian", "train"), 1);
  EXPECT_EQ(edit_distance("temprature", "temperature"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, FindsTheWordThatWasMeant) {
  const std::vector<std::string> commands = {"train", "eval", "generate", "sweep", "plan"};
  EXPECT_EQ(nearest("trian", commands), "train");
  EXPECT_EQ(nearest("Generate", commands), "generate");
  EXPECT_EQ(nearest("swep", commands), "sweep");
  EXPECT_EQ(nearest("xyzzy", commands), "");
  EXPECT_EQ(nearest("", commands), "");
  EXPECT_EQ(nearest(std::string(100000, 'a'), commands), "");
  const std::vector<std::string> flags = {"--temperature", "--tokens", "--top-k", "--top-p"};
  EXPECT_EQ(nearest("--temprature", flags), "--temperature");
  EXPECT_EQ(nearest("--top_p", flags), "--top-p");
  EXPECT_EQ(nearest("--max_new_tokens", flags), "--tokens");
}

}  // namespace
}  // namespace headroom::configs
