// How Debian's chromium shows the reports of a sweep and of a study on a phone (390 pixels) and on
// a wide screen (1280).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/exhibit_report.h"
#include "experiments/process.h"
#include "experiments/report.h"
#include "experiments/sweep_exhibits.h"
#include "experiments_example_sweep.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

// Reports a page's layout to the page around it, as JSON.
constexpr const char* kMeasure = R"(<script>
addEventListener('load', () => {
  const charts = [...document.querySelectorAll('figure svg')].map(svg => {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')];
    const scale = box.width / svg.viewBox.baseVal.width;
    const sizes = texts.map(text => parseFloat(getComputedStyle(text).fontSize) * scale);
    return {left: box.left, right: box.right, width: box.width, height: box.height,
            texts: texts.length, smallest_text: Math.min(...sizes),
            lines: svg.querySelectorAll('path').length};
  });
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  parent.postMessage({width: innerWidth, scroll: document.documentElement.scrollWidth, charts,
                      repeated_ids: ids.length - new Set(ids).size,
                      outside: [...document.querySelectorAll('body *')].filter(element => {
                        const box = element.getBoundingClientRect();
                        const scrolls = element.parentElement.closest('.scroll');
                        return !scrolls && (box.right > innerWidth + 1 || box.left < -1);
                      }).length}, '*');
});
</script>)";

// Shows the report at 390 and at 1280 pixels and collects what kMeasure says, and shows it as it
// is.
constexpr const char* kFrames = R"(<!DOCTYPE html><meta charset="utf-8"><pre id="result"></pre>
<script>
const found = [];
addEventListener('message', event => {
  found.push(event.data);
  document.getElementById('result').textContent = JSON.stringify(found);
});
</script>
<iframe src="measured.html" style="border:0;width:390px;height:4000px"></iframe>
<iframe src="measured.html" style="border:0;width:1280px;height:3000px"></iframe>
<iframe src="report.html" style="border:0;width:390px;height:4000px"></iframe>
)";

struct Seen {
  nlohmann::json pages;  // one entry per width
  std::string log;
};

Seen open_in_chromium(std::string html, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  write_file(folder / "report.html", html);
  const size_t policy = html.find("<meta http-equiv");
  html.erase(policy, html.find('\n', policy) - policy);  // it would forbid the measuring script
  html.insert(html.find("</body>"), kMeasure);
  write_file(folder / "measured.html", html);
  write_file(folder / "frames.html", kFrames);
  const ProcessResult result =
      run_process({"chromium", "--headless", "--no-sandbox", "--disable-gpu",
                   "--disable-dev-shm-usage", "--enable-logging=stderr", "--window-size=1400,1000",
                   "--virtual-time-budget=5000", "--user-data-dir=" + (folder / "profile").string(),
                   "--dump-dom", "file://" + (folder / "frames.html").string()});
  EXPECT_EQ(result.status, 0) << result.err;
  const size_t start = result.out.find("<pre id=\"result\">") + 17;
  const std::string json = result.out.substr(start, result.out.find("</pre>", start) - start);
  return {.pages = nlohmann::json::parse(json, nullptr, false), .log = result.err};
}

void expect_readable(const nlohmann::json& page, size_t charts, double least_width) {
  EXPECT_LE(page["scroll"], page["width"]) << "the page scrolls sideways";
  EXPECT_EQ(page["outside"], 0) << "elements stick out of the page";
  EXPECT_EQ(page["repeated_ids"], 0);
  ASSERT_EQ(page["charts"].size(), charts);
  for (const nlohmann::json& chart : page["charts"]) {
    EXPECT_GE(chart["width"], least_width);
    EXPECT_GE(chart["height"], 0.6 * least_width);
    EXPECT_LE(chart["right"], page["width"]);
    EXPECT_GE(chart["left"], 0);
    EXPECT_GE(chart["texts"], 10);
    EXPECT_GE(chart["smallest_text"], 10) << "chart text is too small to read";
    EXPECT_GE(chart["lines"], 20);
  }
}

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    try {
      run_process({"chromium", "--version"});
    } catch (const Error&) {
      GTEST_SKIP() << "chromium is not installed (Debian package chromium)";
    }
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void expect_readable_at_both_widths(const Report& report, size_t charts) {
    ASSERT_EQ(report.warning, "");
    const Seen seen = open_in_chromium(report.html, folder_);
    ASSERT_EQ(seen.pages.size(), 2u) << seen.log;
    for (const nlohmann::json& page : seen.pages) {
      ASSERT_TRUE(page["width"] == 390 || page["width"] == 1280) << page["width"];
      expect_readable(page, charts, page["width"] == 390 ? 340 : 500);
    }
    EXPECT_NE(seen.pages[0]["width"], seen.pages[1]["width"]);
    EXPECT_EQ(seen.log.find(":CONSOLE"), std::string::npos) << seen.log;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("headroom_browser_") +
       testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Browser, ShowsAFinishedSweepOnAPhoneAndOnAWideScreen) {
  expect_readable_at_both_widths(make_report(example_sweep(), summarize(example_sweep())), 3);
}

TEST_F(Browser, ShowsLongWordsAndEqualCachesWithoutOverflow) {
  Sweep sweep = unfinished_sweep();
  sweep.fair = "same-cache";
  sweep.corpus = std::string(120, 'w');
  sweep.rows[0].sample = std::string(400, 'x');
  sweep.config_yaml = "corpus: " + std::string(300, 'y');
  sweep.machine.cpu = std::string(200, 'z');
  for (Row& row : sweep.rows) row.cache_bytes_per_token = 12288;
  expect_readable_at_both_widths(make_report(sweep, summarize(sweep)), 3);
}

TEST_F(Browser, ShowsAStudyWithItsWideTablesAndLongWords) {
  const Sweep sweep = example_sweep();
  Reproduction study{
      .exhibits = {{.exhibit = show_kv_head_table(sweep, summarize(sweep)), .settings = {}},
                   {.exhibit = show_cache_quality(sweep, summarize(sweep)), .settings = {}}},
      .planned = 2,
      .finished = true,
      .sweep = std::string(200, 's'),
      .machine = sweep.machine};
  study.exhibits[0].exhibit.id = "kv-head-table";
  Exhibit& wide = study.exhibits[1].exhibit;
  wide.id = "cache-quality";
  wide.rows.push_back(
      exhibit_row(std::string(60, 'f') + " figure", 1, 2, "nats/token", std::string(300, 'n')));
  for (auto& line : wide.table) line.resize(30, "a column");
  expect_readable_at_both_widths(make_exhibit_report(study), 2);
}

}  // namespace
}  // namespace headroom::experiments
