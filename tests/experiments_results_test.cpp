// The printed table, results.json and results.csv of a made-up sweep.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "contains.h"
#include "experiments/format.h"
#include "experiments/results_file.h"
#include "experiments/table.h"
#include "experiments_example_sweep.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

using testing::contains;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string table_of(const Sweep& sweep) { return sweep_table(sweep, summarize(sweep)); }

TEST(Format, NumbersReadAsWritten) {
  EXPECT_EQ(format_bytes(12288), "12.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(256), "256 B");
  EXPECT_EQ(format_bytes(3 << 20), "3.0 MiB");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(4786432), "4,786,432");
  EXPECT_EQ(format_tokens(4096000), "4.1 M");
  EXPECT_EQ(format_seconds(42.4), "42 s");
  EXPECT_EQ(format_seconds(723), "12 min 3 s");
  EXPECT_EQ(format_seconds(11100), "3 h 5 min");
  EXPECT_EQ(format_difference(-0.0123, 0.0041), "-0.012 ± 0.004");
  EXPECT_EQ(format_difference(0.00123, 0.00041), "+0.0012 ± 0.0004");
  EXPECT_EQ(format_p(0.134), "0.134");
  EXPECT_EQ(format_p(0.0002), "< 0.001");
  EXPECT_EQ(format_loss(1.48766, 0.0018), "1.488 ± 0.002");
  EXPECT_EQ(format_loss(NAN, 0.1), "diverged");
  EXPECT_EQ(display_width("Δ ± −"), 5u);
}

const std::string kMainTable =
    R"(n_kv_head  parameters  cache/token  best val loss  Δ vs MHA        verdict
                                    mean ± sd,     95 % CI
                                    3 seeds
8           4,734,976     12.0 KiB  1.488 ± 0.002  -               reference
4           4,341,760      6.0 KiB  1.489 ± 0.003  +0.001 ± 0.002  no difference resolved at 3 seeds
2           4,145,152      3.0 KiB  1.490 ± 0.001  +0.002 ± 0.007  no difference resolved at 3 seeds
1           4,046,848      1.5 KiB  1.501 ± 0.002  +0.013 ± 0.001  worse by 0.013 ± 0.001
)";

TEST(Table, SaysWhatTheSweepFound) {
  EXPECT_EQ(table_of(example_sweep()).substr(0, kMainTable.size()), kMainTable);
}

TEST(Table, FitsIn100ColumnsForEveryFairness) {
  for (const char* fair : {"same-shape", "same-params", "same-cache"}) {
    for (Sweep sweep : {example_sweep(), one_seed_sweep(), unfinished_sweep()}) {
      sweep.fair = fair;
      sweep.rows[0].params = 123600000;
      for (const std::string& line : lines_of(table_of(sweep))) {
        EXPECT_LE(display_width(line), 100u) << line;
      }
    }
  }
}

TEST(Table, ShowsWhatFairnessChanges) {
  Sweep sweep = example_sweep();
  sweep.fair = "same-params";
  EXPECT_TRUE(contains(table_of(sweep), "n_kv_head  n_ff  parameters"));
  sweep.fair = "same-cache";
  sweep.rows[3].n_layer = 48;
  sweep.rows[3].tokens = 512000;
  const std::string table = table_of(sweep);
  EXPECT_TRUE(contains(table, "n_kv_head  layers  parameters  cache/token  tokens"));
  EXPECT_TRUE(contains(table, "1              48"));
  EXPECT_TRUE(contains(table, "512 k"));
  EXPECT_TRUE(contains(table, "  worse by\n"));
  EXPECT_TRUE(contains(table, " 0.013 ± 0.001\n"));
}

TEST(Table, NamesCorpusResolutionAndSeeds) {
  const std::string table = table_of(example_sweep());
  EXPECT_TRUE(contains(table, "Corpus: Tiny Shakespeare"));
  EXPECT_TRUE(contains(table, "Smallest difference these seeds resolve: 0.007"));
  EXPECT_TRUE(contains(table, "Seeds that would resolve 0.005: 4"));
  EXPECT_TRUE(contains(table, "1.492 ± 0.002"));  // final loss of n_kv_head 8
}

TEST(Table, PublishedFiguresAreLabelledAndStayWithTinyShakespeare) {
  Sweep sweep = example_sweep();
  EXPECT_TRUE(contains(table_of(sweep), "published"));
  EXPECT_TRUE(contains(table_of(sweep), "compare the pattern, not the level"));
  sweep.tiny_shakespeare = false;
  sweep.corpus = "King James Bible";
  EXPECT_FALSE(contains(table_of(sweep), "published"));
  EXPECT_FALSE(contains(table_of(sweep), "1.53"));
}

TEST(Table, UnfinishedAndOneSeedAreSaid) {
  EXPECT_TRUE(contains(table_of(unfinished_sweep()), "Unfinished: 5 of 12 runs are done."));
  const std::string one = table_of(one_seed_sweep());
  EXPECT_TRUE(contains(one, "one seed: no verdict"));
  EXPECT_TRUE(contains(one, "1 seed"));
  EXPECT_TRUE(contains(one, "unknown (needs two seeds or more)"));
}

nlohmann::json json_of(const Sweep& sweep) {
  return nlohmann::json::parse(results_json(sweep, summarize(sweep)));
}

TEST(ResultsJson, HoldsTheContractsNames) {
  const nlohmann::json json = json_of(example_sweep());
  const nlohmann::json& row = json["rows"][3];
  EXPECT_EQ(row["name"], "n_kv_head 1");
  EXPECT_EQ(row["n_kv_head"], 1);
  EXPECT_EQ(row["attention"], "mqa");
  EXPECT_EQ(row["n_layer"], 6);
  EXPECT_EQ(row["params"], 4046848);
  EXPECT_EQ(row["attention_params_per_layer"], 147456);
  EXPECT_EQ(row["cache_bytes_per_token"], 1536);
  EXPECT_NEAR(row["val_loss"]["mean"], 1.5011, 1e-9);
  EXPECT_NEAR(row["val_loss"]["sd"], 0.00195192, 1e-7);
  EXPECT_EQ(row["val_loss"]["values"], nlohmann::json({1.5012, 1.5030, 1.4991}));
  EXPECT_NEAR(row["final_loss"]["mean"], 1.5051, 1e-9);
  EXPECT_NEAR(row["delta_vs_mha"]["mean"], 0.0128, 1e-9);
  EXPECT_NEAR(row["delta_vs_mha"]["ci95"], 0.00074524131, 1e-9);
  EXPECT_NEAR(row["delta_vs_mha"]["p"], 0.00018305519, 1e-9);
  EXPECT_EQ(row["tokens"], 4096000);
  EXPECT_EQ(row["seconds"], 610 + 620 + 630);
  EXPECT_EQ(row["runs"][2]["curve"].size(), 10u);
  EXPECT_EQ(row["runs"][2]["seed"], 3);
  EXPECT_NEAR(json["resolvable_difference"], 0.0067071718, 1e-8);
  EXPECT_EQ(json["seeds_to_resolve_0.005"], 4);
  EXPECT_EQ(json["machine"]["precision"], "bf16");
  EXPECT_EQ(json["seeds"], nlohmann::json({1, 2, 3}));
  EXPECT_EQ(json["corpus"], "Tiny Shakespeare");
  EXPECT_TRUE(contains(json["config"].get<std::string>(), "n_head: 8"));
}

TEST(ResultsJson, OneSeedMakesSpreadIntervalAndPNull) {
  const nlohmann::json json = json_of(one_seed_sweep());
  const nlohmann::json& row = json["rows"][3];
  EXPECT_TRUE(row["val_loss"]["sd"].is_null());
  EXPECT_TRUE(row["final_loss"]["sd"].is_null());
  EXPECT_TRUE(row["delta_vs_mha"]["ci95"].is_null());
  EXPECT_TRUE(row["delta_vs_mha"]["p"].is_null());
  EXPECT_NEAR(row["delta_vs_mha"]["mean"], 0.0131, 1e-9);
  EXPECT_TRUE(json["resolvable_difference"].is_null());
}

TEST(ResultsJson, StaysJsonWithDivergedRunsAndBrokenText) {
  Sweep sweep = example_sweep();
  sweep.rows[1].runs[0].best_loss = INFINITY;
  sweep.rows[1].sample = "\xff\xc3(";
  const nlohmann::json json = json_of(sweep);
  EXPECT_TRUE(json["rows"][1]["val_loss"]["values"][0].is_null());
  EXPECT_TRUE(json["rows"][1]["val_loss"]["mean"].is_null());
}

TEST(ResultsCsv, HasOneLinePerEvaluationAndEqualFieldCounts) {
  Sweep sweep = example_sweep();
  const std::vector<std::string> lines = lines_of(results_csv(sweep, summarize(sweep)));
  ASSERT_EQ(lines.size(), 1u + 4 * 3 * 10);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 25) << line;
  }
  EXPECT_TRUE(
      contains(lines.back(), "Tiny Shakespeare,same-shape,n_kv_head 1,1,mqa,6,1024,4046848,"));
  EXPECT_TRUE(contains(lines.back(), ",3,1.4991,900,1.5031,4096000,630,1000,4096000,1.5031"));
}

TEST(ResultsCsv, QuotesNamesThatHoldCommas) {
  Sweep sweep = one_seed_sweep();
  sweep.corpus = "my \"own\", text";
  EXPECT_TRUE(
      contains(results_csv(sweep, summarize(sweep)), "\n\"my \"\"own\"\", text\",same-shape"));
}

TEST(ResultsFile, WritesBothIntoTheFolder) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "headroom_results_file";
  std::filesystem::create_directories(folder);
  const Sweep sweep = example_sweep();
  write_results(folder, sweep, summarize(sweep));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "results.json"))["rows"].size(), 4u);
  EXPECT_EQ(read_file(folder / "results.csv").substr(0, 12), "corpus,fair,");
  std::filesystem::remove_all(folder);
}

TEST(ResultsJson, IsReadBackAsItWasWritten) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "headroom_results_read";
  std::filesystem::create_directories(folder);
  Sweep sweep = unfinished_sweep();
  sweep.rows[1].runs[0].final_loss = NAN;
  write_results(folder, sweep, summarize(sweep));
  const Sweep read = read_results(folder);
  EXPECT_EQ(results_json(read, summarize(read)), results_json(sweep, summarize(sweep)));
  EXPECT_TRUE(read.tiny_shakespeare);
  EXPECT_TRUE(std::isnan(read.rows[1].runs[0].final_loss));
  write_file(folder / "results.json", "{\"rows\": [{}]}");
  EXPECT_THROW(read_results(folder), InputError);
  EXPECT_THROW(read_results(folder / "none"), InputError);
}

}  // namespace
}  // namespace headroom::experiments
