// Exhibits as files, as JSON and as words.
#include "experiments/exhibit_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/exhibit_report.h"
#include "reproduce_study.h"

namespace headroom::testing {
namespace {

using experiments::DoneExhibit;
using experiments::ExhibitRow;

DoneExhibit example() {
  return {.exhibit = {.id = "an-id",
                      .title = "A <title>",
                      .setting = "as \"it\" was",
                      .rows = {{.figure = "naive",
                                .published = 9.84,
                                .published_to = {},
                                .ours = 444.25,
                                .unit = "ms",
                                .note = ""},
                               {.figure = "ratio",
                                .published = 10,
                                .published_to = 20,
                                .ours = 1.0 / 3,
                                .unit = "times",
                                .note = "folklore"},
                               {.figure = "missing",
                                .published = {},
                                .published_to = {},
                                .ours = {},
                                .unit = "s",
                                .note = "no time"}},
                      .table = {{"a", "b"}, {"1", "2 < 3"}},
                      .chart = "",
                      .legend = {"x", "y"},
                      .caption = "c",
                      .why = "because"},
          .settings = "full; 2 threads",
          .seconds = 12.5};
}

TEST(ExhibitFile, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  const DoneExhibit done = example();
  experiments::write_exhibit(folder / "e.json", done);
  const DoneExhibit again = experiments::read_exhibit(folder / "e.json");
  EXPECT_EQ(again.exhibit, done.exhibit);
  EXPECT_EQ(again.settings, done.settings);
  EXPECT_EQ(again.seconds, done.seconds);
}

TEST(ExhibitFile, JsonHasNullForWhatIsNotKnownAndBothEndsOfARange) {
  const auto json = nlohmann::json::parse(experiments::reproduction_json({.exhibits = {example()},
                                                                          .planned = 2,
                                                                          .finished = false,
                                                                          .quick = true,
                                                                          .sweep = "s",
                                                                          .machine = {}}));
  const auto& rows = json.at("rows");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("exhibit"), "an-id");
  EXPECT_EQ(rows[0].at("published"), 9.84);
  EXPECT_EQ(rows[0].at("ours"), 444.25);
  EXPECT_EQ(rows[1].at("published"), nlohmann::json({10, 20}));
  EXPECT_TRUE(rows[2].at("published").is_null());
  EXPECT_TRUE(rows[2].at("ours").is_null());
  EXPECT_EQ(rows[2].at("note"), "not measured: no time");
  EXPECT_EQ(json.at("exhibits")[0].at("why"), "because");
}

TEST(ExhibitFile, FiguresReadLikeFigures) {
  using experiments::format_figure;
  EXPECT_EQ(format_figure(9.84), "9.84");
  EXPECT_EQ(format_figure(444.249), "444.2");
  EXPECT_EQ(format_figure(49152), "49,152");
  EXPECT_EQ(format_figure(12345.6), "12,346");
  EXPECT_EQ(format_figure(3.5744e10), "3.57e10");
  EXPECT_EQ(format_figure(3.65e-7), "3.65e-7");
  EXPECT_EQ(format_figure(9.999e9), "1.00e10");
  EXPECT_EQ(format_figure(0), "0");
  EXPECT_EQ(format_figure(-0.02556), "-0.02556");
  const DoneExhibit done = example();
  EXPECT_EQ(published_text(done.exhibit.rows[1]), "10 to 20 times");
  EXPECT_EQ(ours_text(done.exhibit.rows[2]), "not measured");
}

TEST(ExhibitReport, ShowsEveryExhibitEscapedAndSaysWhatIsMissing) {
  const std::string html = experiments::make_exhibit_report({.exhibits = {example()},
                                                             .planned = 19,
                                                             .finished = false,
                                                             .quick = true,
                                                             .sweep = "runs/sweep",
                                                             .machine = {}})
                               .html;
  EXPECT_TRUE(holds(html, "A &lt;title&gt;"));
  EXPECT_TRUE(holds(html, "2 &lt; 3"));
  EXPECT_TRUE(holds(html, "Unfinished: 1 of 19 exhibits are here."));
  EXPECT_TRUE(holds(html, "2 figures computed or measured on this machine; 1 could not be"));
  EXPECT_TRUE(holds(html, "444.2 ms"));
  EXPECT_TRUE(holds(html, "<strong>Why they differ.</strong> because"));
  EXPECT_TRUE(holds(html, "runs/sweep"));
  EXPECT_FALSE(holds(html, "<title>A <title>"));
}

}  // namespace
}  // namespace headroom::testing
