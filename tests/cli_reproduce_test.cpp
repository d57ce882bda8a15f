// headroom reproduce as a user sees it: one exhibit, JSON, what is kept, what is refused, Ctrl-C.
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "cli_run.h"
#include "tensor/file.h"

namespace headroom::testing {
namespace {

TEST(ReproduceCommand, PrintsOneExhibitAndWritesTheReport) {
  const TemporaryFolder folder;
  const std::string out = folder / "study";
  const RunResult run = headroom_run({"reproduce", "--quick", "--out", out, "--only", "presets"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("GPT-3 175B, 2048 tokens, fp16"), std::string::npos);
  EXPECT_NE(run.out.find("9.664 GB"), std::string::npos);
  EXPECT_NE(run.out.find("why they differ: "), std::string::npos);
  EXPECT_NE(run.err.find("the report is " + out), std::string::npos);
  const std::string html = read_file(std::filesystem::path(out) / "report.html");
  EXPECT_NE(html.find("presets"), std::string::npos);
}

TEST(ReproduceCommand, JsonIsTheDesigns) {
  const TemporaryFolder folder;
  const Arguments command = {"reproduce",   "--out",  folder / "study", "--only",
                             "worked-step", "--only", "presets"};
  const nlohmann::json out = headroom_json(command);
  std::set<std::string> exhibits;
  for (const auto& row : out.at("rows")) {
    exhibits.insert(row.at("exhibit").get<std::string>());
    EXPECT_TRUE(row.at("published").is_number() || row.at("published").is_null());
    EXPECT_TRUE(row.at("ours").is_number());
    EXPECT_TRUE(row.at("unit").is_string());
    EXPECT_TRUE(row.at("note").is_string());
  }
  EXPECT_EQ(exhibits, (std::set<std::string>{"presets", "worked-step"}));
  EXPECT_EQ(headroom_json(command), out);  // read again, to the last digit
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "study" / "results.json")).at("rows"),
            out.at("rows"));
}

TEST(ReproduceCommand, RefusesAnUnknownExhibitAndWhatIsNoSweep) {
  const TemporaryFolder folder;
  const std::string out = folder / "study";
  const std::string unknown = headroom_refusal({"reproduce", "--out", out, "--only", "nonsense"});
  EXPECT_NE(unknown.find("--only is nonsense, which is no exhibit: there are latency, end-to-end"),
            std::string::npos);
  const std::string sweep =
      headroom_refusal({"reproduce", "--out", out, "--sweep", folder / "none"});
  EXPECT_NE(sweep.find("which holds no finished sweep"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(ReproduceCommand, CtrlCKeepsWhatIsDoneAndTheSameCommandGoesOn) {
  const TemporaryFolder folder;
  const Arguments command = {"reproduce", "--quick", "--out",  folder / "study",
                             "--only",    "presets", "--only", "latency"};
  {
    Program program(command, {.environment = {{"OMP_NUM_THREADS", "1"}}});
    ASSERT_TRUE(program.wait_for_err("(latency)")) << program.err();
    program.send(SIGINT);
    const RunResult run = program.wait();
    EXPECT_EQ(run.status, 130) << run.err;
    EXPECT_NE(run.err.find("the same command goes on"), std::string::npos);
  }
  const nlohmann::json out =
      headroom_json({"reproduce", "--quick", "--out", folder / "study", "--only", "presets"});
  EXPECT_EQ(out.at("rows").size(), 10u);
}

}  // namespace
}  // namespace headroom::testing
