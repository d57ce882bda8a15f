// headroom analyze: what it prints of a run, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>

#include "cli_random_run.h"
#include "cli_run.h"

namespace headroom::testing {
namespace {

using nlohmann::json;

/// A random run, which knows the characters of "abc de.\n", and a corpus of them.
struct AnalyzedRun {
  RandomRun run;
  std::string corpus;
  AnalyzedRun() {
    std::string text;
    const RandomStream stream(3, "corpus");
    for (uint64_t i = 0; i < 6000; ++i) {
      text += "abc de.\n"[stream.integer(i, 8)];
    }
    corpus = run.file("corpus.txt", text).string();
  }
  Arguments command(const std::string& what, const Arguments& more = {}) const {
    Arguments all = {"analyze",    what, run.path().string(), "--corpus", corpus,
                     "--passages", "3",  "--context",         "32"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST(Analyze, SinksGivesEveryLayerAndHead) {
  const AnalyzedRun analyzed;
  const json out = headroom_json(analyzed.command("sinks"));
  ASSERT_EQ(out.at("layers").size(), 2u);
  EXPECT_EQ(out.at("context"), 32);
  EXPECT_EQ(out.at("passages"), 3);
  double low = 1, high = 0;
  for (const json& layer : out.at("layers")) {
    ASSERT_EQ(layer.at("token_0").size(), 4u);
    for (const double mass : layer.at("token_0")) {
      EXPECT_GT(mass, 0);
      EXPECT_LT(mass, 1);
      low = std::min(low, mass);
      high = std::max(high, mass);
    }
    double expected = 0;  // the mean of 1 / 2 ... 1 / 32
    for (int n = 2; n <= 32; ++n) {
      expected += 1.0 / n / 31;
    }
    EXPECT_NEAR(layer.at("uniform"), expected, 1e-9);
    EXPECT_FALSE(layer.contains("learned_sink"));
  }
  EXPECT_EQ(out.at("published").at(0).at("published"), 0);
  EXPECT_DOUBLE_EQ(out.at("published").at(0).at("ours"), low);
  EXPECT_EQ(out.at("published").at(1).at("published"), 0.57);
  EXPECT_DOUBLE_EQ(out.at("published").at(1).at("ours"), high);
  EXPECT_TRUE(out.at("why").get<std::string>().starts_with("The model differs: ")) << out.at("why");
}

TEST(Analyze, WindowPutsFullAttentionBesideEachNumberOfSinks) {
  const AnalyzedRun analyzed;
  const json out = headroom_json(analyzed.command("window", {"--window", "8"}));
  const json& rows = out.at("rows");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows.at(0).at("window"), 0);
  EXPECT_EQ(rows.at(3).at("sinks"), 4);
  for (const json& row : rows) {
    const double loss = row.at("loss_nats");
    EXPECT_NEAR(row.at("perplexity"), std::exp(loss), 1e-9);
    EXPECT_NEAR(row.at("above_full_nats"), loss - rows.at(0).at("loss_nats").get<double>(), 1e-12);
    EXPECT_EQ(row.at("cache_bytes"), 2 * 2 * 2 * 8 * 4 * 32);  // 32 slots: less than one block
  }
  ASSERT_EQ(out.at("published").size(), 5u);
  for (const auto& [i, published] : {std::pair(0, 3.58), {1, 8.25}, {2, 3.86}, {3, 3.76}}) {
    EXPECT_EQ(out.at("published").at(i).at("published"), published);
    EXPECT_EQ(out.at("published").at(i).at("ours"), rows.at(i).at("loss_nats"));
  }
}

TEST(Analyze, LowRankKeepsEverythingAtFullRank) {
  const AnalyzedRun analyzed;
  const json out = headroom_json(analyzed.command("low-rank"));
  EXPECT_EQ(out.at("width"), 32);        // 2 * 2 KV heads * 8
  ASSERT_EQ(out.at("rows").size(), 7u);  // 32, 16, 10, 8, 5, 4 and 2
  EXPECT_NEAR(out.at("rows").at(0).at("loss_nats"), out.at("full_loss_nats"), 1e-4);
  double energy = 1 + 1e-9;
  for (const json& row : out.at("rows")) {
    EXPECT_LE(row.at("energy_kept"), energy);
    energy = row.at("energy_kept");
    EXPECT_EQ(row.at("cache_bytes_per_token"), 2 * row.at("rank").get<int64_t>() * 4);
  }
  const json& published = out.at("published");
  ASSERT_EQ(published.size(), 3u);  // untruncated, and a sixth and a twelfth of the numbers
  EXPECT_EQ(published.at(1).at("published"), 3.49);
  EXPECT_EQ(published.at(1).at("ours"), out.at("rows").at(4).at("loss_nats"));
  EXPECT_EQ(published.at(2).at("published"), 3.66);
  EXPECT_EQ(published.at(2).at("ours"), out.at("rows").at(6).at("loss_nats"));
}

TEST(Analyze, WritesThePictureWhereAsked) {
  const AnalyzedRun analyzed;
  const TemporaryFolder folder;
  for (const std::string what : {"sinks", "window", "low-rank"}) {
    const std::string file = (folder / (what + ".svg")).string();
    const RunResult result = headroom_run(analyzed.command(what, {"--plot", file}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("The model differs"), std::string::npos) << result.out;
    const std::string svg = read_file(file);
    EXPECT_NE(svg.find("<svg"), std::string::npos);
    EXPECT_NE(svg.find(what == "low-rank" ? "numbers kept"
                       : what == "window" ? "position"
                                          : "head"),
              std::string::npos);
    EXPECT_EQ(svg.find("<image"), std::string::npos) << what;  // shapes, not pixels
  }
  headroom_refusal(analyzed.command("sinks", {"--plot", "/nowhere/at/all.svg", "--quiet"}), {}, 1);
}

TEST(Analyze, RefusesWhatCannotBeMeasured) {
  const AnalyzedRun analyzed;
  const auto refusal = [&](const std::string& what, const Arguments& more) {
    return headroom_refusal(analyzed.command(what, more));
  };
  EXPECT_NE(refusal("window", {"--window", "32"}).find("from 1 to 31"), std::string::npos);
  EXPECT_NE(refusal("window", {"--sinks", "1,x"}).find("--sinks is 1,x"), std::string::npos);
  EXPECT_NE(refusal("low-rank", {"--ranks", "33"}).find("rank 33 is none of 1 to 32"),
            std::string::npos);
  EXPECT_NE(
      headroom_refusal({"analyze", "sinks", "run", "--passages", "0"}).find("--passages is 0"),
      std::string::npos);
  const std::string too_long = headroom_refusal({"analyze", "sinks", analyzed.run.path().string(),
                                                 "--corpus", analyzed.corpus, "--context", "1000"});
  EXPECT_NE(too_long.find("1000 tokens"), std::string::npos) << too_long;
}

}  // namespace
}  // namespace headroom::testing
