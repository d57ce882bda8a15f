// report.html of made-up sweeps: what it says, and that it is safe and self-contained; its charts'
// data; the programs it runs.
#include "experiments/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "contains.h"
#include "experiments/charts.h"
#include "experiments/gnuplot.h"
#include "experiments/process.h"
#include "experiments_example_sweep.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

using testing::contains;

std::string report_of(const Sweep& sweep) { return make_report(sweep, summarize(sweep)).html; }

std::string finding_of(const Sweep& sweep) { return finding(sweep, summarize(sweep)); }

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

TEST(Process, PassesInputAndHandsBackOutputErrorAndStatus) {
  const std::string long_input(300000, 'x');  // more than a pipe holds
  EXPECT_EQ(run_process({"cat"}, long_input).out, long_input);
  const ProcessResult failed = run_process({"sh", "-c", "echo said >&2; exit 3"});
  EXPECT_EQ(failed.status, 3);
  EXPECT_EQ(failed.err, "said\n");
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}).status, 128 + 9);
  EXPECT_THROW(run_process({"no-such-program-of-headroom"}), Error);
}

TEST(Process, ArgumentsReachNoShell) {
  EXPECT_EQ(run_process({"printf", "%s", "$(echo no); `echo no`"}).out, "$(echo no); `echo no`");
}

TEST(Finding, SaysCacheAndLossInTwoSentences) {
  EXPECT_EQ(
      finding_of(example_sweep()),
      "With 1 key/value head instead of 8 the cache takes 1.5 KiB per token instead of 12.0 "
      "KiB, 8 times less. Against multi-head attention's best validation loss of 1.488, "
      "n_kv_head 1 is worse by 0.013 ± 0.001, while n_kv_head 4 and 2 show no difference that "
      "these seeds resolve.");
}

TEST(Finding, OneSeedClaimsNothing) {
  const std::string text = finding_of(one_seed_sweep());
  EXPECT_TRUE(contains(text, "lie between 1.488 and 1.501 nats per token, but one seed can't"));
  EXPECT_FALSE(contains(text, "worse"));
}

TEST(Finding, SaysWhatEqualCacheBuys) {
  Sweep sweep = example_sweep();
  sweep.fair = "same-cache";
  for (Row& row : sweep.rows) row.cache_bytes_per_token = 12288;
  sweep.rows[3].n_layer = 48;
  EXPECT_TRUE(
      contains(finding_of(sweep),
               "Every model caches 12.0 KiB per token: the one with 8 key/value heads spends "
               "it on 6 layers, the one with 1 key/value head on 48."));
}

TEST(Report, EscapesWhatIsNotItsOwn) {
  Sweep sweep = example_sweep();
  sweep.corpus = "<script>alert('corpus')</script>";
  sweep.rows[0].sample = "</pre><img src=\"http://example.com/x.png\">\x01";
  sweep.config_yaml = "a: \"</pre><b>\"";
  sweep.machine.cpu = "<b>CPU</b>";
  const std::string html = report_of(sweep);
  EXPECT_FALSE(contains(html, "<script"));
  EXPECT_FALSE(contains(html, "<img"));
  EXPECT_FALSE(contains(html, "<b>"));
  EXPECT_FALSE(contains(html, "\x01"));
  EXPECT_TRUE(contains(html, "&lt;script&gt;alert(&#39;corpus&#39;)&lt;/script&gt;"));
}

TEST(Report, AsksForNothingOutsideItself) {
  const std::string html = report_of(example_sweep());
  for (const char* request :
       {"src=", "href=\"http", "href='http", "url(", "@import", "<link", "<script"}) {
    EXPECT_FALSE(contains(html, request)) << request;
  }
  EXPECT_TRUE(contains(html, "default-src 'none'"));
}

TEST(Report, HoldsTableSamplesConfigMachineAndTime) {
  const std::string html = report_of(example_sweep());
  for (const char* part : {"4,734,976", "12.0 KiB", "1.488 ± 0.002", "+0.013 ± 0.001",
                           "no difference resolved at 3 seeds", "temperature 0.8",
                           "my father&#39;s house", "batch_size: 16", "Example CPU @ 2.0 GHz",
                           "2 h 1 min", "2025-01-31 12:00", "Student&#39;s t"}) {
    EXPECT_TRUE(contains(html, part)) << part;
  }
  EXPECT_EQ(count(html, "<pre>"), 5u);  // four samples and the config
  EXPECT_FALSE(contains(html, "Unfinished"));
  EXPECT_FALSE(contains(html, "$row"));  // gnuplot's own words as tooltips
  EXPECT_FALSE(contains(html, "Gnuplot"));
}

TEST(Report, PublishedFiguresStandOnlyBesideTinyShakespeare) {
  Sweep sweep = example_sweep();
  EXPECT_TRUE(contains(report_of(sweep), "Beside the published figures"));
  EXPECT_TRUE(contains(report_of(sweep), "−0.03"));  // 1.50 - 1.53
  sweep.tiny_shakespeare = false;
  EXPECT_FALSE(contains(report_of(sweep), "ublished"));
}

TEST(Report, UnfinishedSweepsAreShownAsSuch) {
  EXPECT_TRUE(contains(report_of(unfinished_sweep()), "Unfinished: 5 of 12 runs are done."));
}

TEST(Report, SweepsWithoutARunHaveNoCharts) {
  Sweep sweep = unfinished_sweep();
  for (Row& row : sweep.rows) row.runs.clear();
  const Report report = make_report(sweep, summarize(sweep));
  EXPECT_EQ(report.warning, "");
  EXPECT_EQ(count(report.html, "<svg"), 0u);
  EXPECT_TRUE(contains(report.html, "No run has a validation loss yet."));
}

TEST(Report, DivergedRunsLeaveTheOthersOnTheCharts) {
  Sweep sweep = example_sweep();
  sweep.rows[1].runs[0].best_loss = NAN;
  sweep.rows[1].runs[0].curve[3].val_loss = INFINITY;
  const Report report = make_report(sweep, summarize(sweep));
  EXPECT_EQ(report.warning, "");
  EXPECT_EQ(count(report.html, "<svg"), 3u);
  EXPECT_TRUE(contains(report.html, "a run diverged: no verdict"));
}

// PATH without any program, until the end of the scope.
class NoPrograms {
 public:
  NoPrograms() { setenv("PATH", "/nonexistent", 1); }
  ~NoPrograms() { setenv("PATH", path_.c_str(), 1); }
  NoPrograms(const NoPrograms&) = delete;
  NoPrograms& operator=(const NoPrograms&) = delete;

 private:
  std::string path_ = std::getenv("PATH");
};

TEST(Report, WithoutGnuplotItIsWrittenWithANoteInPlaceOfTheCharts) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "headroom_no_gnuplot";
  std::filesystem::create_directories(folder);
  const Sweep sweep = example_sweep();
  const NoPrograms no_programs;
  const std::string warning = write_report(folder, sweep, summarize(sweep));
  const std::string html = read_file(folder / "report.html");
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(contains(warning, "gnuplot-nox")) << warning;
  EXPECT_EQ(count(html, "No chart."), 3u);
  EXPECT_TRUE(contains(html, "no difference resolved at 3 seeds"));
}

// A chart's data as gnuplot is given them.
TEST(Charts, CurvesHoldMeanLowestAndHighestOfTheSeeds) {
  Sweep sweep = example_sweep();
  for (SeedRun& run : sweep.rows[0].runs) {
    run.curve = {{100, 2000000, 2.0 + 0.25 * static_cast<double>(run.seed)}};
  }
  sweep.rows[0].runs[2].curve.push_back({200, 4000000, 1.5});  // one seed only: not in the band
  const std::string script = curves_chart(sweep);
  EXPECT_TRUE(contains(script, "$row0 << EOD\n2 2.5 2.25 2.75\nEOD\n")) << script;
}

TEST(Charts, DifferencesArePairedBySeedAndLeaveTheReferenceOut) {
  Sweep sweep = example_sweep();
  sweep.rows.resize(2);
  for (SeedRun& run : sweep.rows[0].runs) {
    run.curve = {{100, 2000000, 2.0 + static_cast<double>(run.seed)}};
  }
  for (SeedRun& run : sweep.rows[1].runs) {
    run.curve = {{100, 2000000, 2.5 + static_cast<double>(run.seed)}, {150, 3000000, 1.0}};
  }
  std::reverse(sweep.rows[1].runs.begin(), sweep.rows[1].runs.end());
  const std::string script = difference_chart(sweep, summarize(sweep));
  EXPECT_TRUE(contains(script, "$row1 << EOD\n2 0.5 0.5 0.5\nEOD\n")) << script;
  EXPECT_FALSE(contains(script, "$row0"));
}

TEST(Charts, ErrorBarsAreOneStandardDeviation) {
  Sweep sweep = example_sweep();
  for (SeedRun& run : sweep.rows[1].runs) run.best_loss = 1.0 + 0.5 * static_cast<double>(run.seed);
  const std::string script = cache_chart(sweep, summarize(sweep));
  // log2 of 6144 bytes; mean of 1.5, 2, 2.5; their deviation.
  EXPECT_TRUE(contains(script, "$row1 << EOD\n12.584962500721156 2 0.5\nEOD\n")) << script;
}

TEST(Charts, OneEvaluationBeforeAnyTrainingIsStillAChart) {
  Sweep sweep = one_seed_sweep();
  for (Row& row : sweep.rows) row.runs[0].curve = {{0, 0, 4.2}};
  EXPECT_TRUE(contains(draw(curves_chart(sweep), "x"), "<svg"));
}

TEST(Charts, FailuresOfGnuplotAreReported) {
  EXPECT_THROW(draw("this is no gnuplot command\n", "x"), Error);
}

}  // namespace
}  // namespace headroom::experiments
