// headroom reproduce as a driver: which exhibits are made, kept, made again and reported, with
// exhibits that only say that they ran. The exhibits themselves have tests of their own.
#include "experiments/reproduce.h"

#include <gtest/gtest.h>

#include "configs/print.h"
#include "experiments/study_folder.h"
#include "reproduce_study.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using experiments::Exhibit;
using experiments::Study;

int made = 0;       // exhibits, by the kinds below
double answer = 1;  // what "plain" measures
Study last_study;   // what the last of them was given

Exhibit one_row(const Study& study, double ours) {
  ++made;
  last_study = study;
  study.progress(0, 2);
  study.progress(1, 2);
  Exhibit exhibit;
  exhibit.rows = {{.figure = "it", .published = 3, .ours = ours, .unit = "ms", .note = "said"}};
  return exhibit;
}
Exhibit plain(const Study& study) { return one_row(study, answer); }
Exhibit needy(const Study& study) { return one_row(study, 2); }
Exhibit broken(const Study&) { throw Error("it broke"); }
Exhibit greedy(const Study&) { throw std::bad_alloc(); }

/// Two exhibits without a sweep and one that reads it, in a folder of their own.
struct StudyPlace : SweepPlace {
  NoCharts no_charts;
  experiments::ReproduceOptions options;
  StudyPlace() {
    made = 0;
    answer = 1;
    options.folder = folder / "study";
    options.kinds = {{"first", "The first", false, 10, 1, plain},
                     {"second", "The second", false, 20, 2, plain},
                     {"swept", "Of a sweep", true, 30, 3, needy}};
    options.sweep_config = config();
    options.preset = tiny_preset;
  }
  experiments::ReproduceOutcome run(StudyRecorder& recorder) const {
    SweepRecorder nobody;
    return experiments::reproduce(options, recorder, nobody);
  }
  experiments::ReproduceOutcome run() const {
    StudyRecorder nobody;
    return run(nobody);
  }
  void only(const std::vector<std::string>& ids) { options.only = ids; }
  nlohmann::json results() const {
    return nlohmann::json::parse(read_file(options.folder / "results.json"));
  }
};

/// What a finished sweep looks like from outside.
void pretend_sweep(const fs::path& folder, const std::string& results = "{\"finished\": true}") {
  fs::create_directories(folder);
  write_file(folder / "results.json", results);
  write_file(folder / "config.yaml", "model: {}\n");
}

TEST(Reproduce, MakesWhatIsAskedForAndKeepsIt) {
  StudyPlace place;
  place.only({"second"});
  StudyRecorder first;
  const auto outcome = place.run(first);
  EXPECT_EQ(first.begun, std::vector<std::string>{"second"});
  ASSERT_EQ(outcome.asked.exhibits.size(), 1u);
  EXPECT_EQ(outcome.asked.exhibits[0].exhibit.title, "The second");
  EXPECT_TRUE(outcome.failed.empty());
  EXPECT_FALSE(outcome.interrupted);
  place.only({"first", "second"});
  StudyRecorder again;
  EXPECT_EQ(place.run(again).asked.exhibits.size(), 2u);
  EXPECT_EQ(again.begun, std::vector<std::string>{"first"});
  EXPECT_TRUE(again.noted("1 of 2 exhibits are there already and kept"));
  EXPECT_EQ(made, 2);
  EXPECT_EQ(place.results().at("finished"), false);  // "swept" is still to come
}

TEST(Reproduce, WritesEveryFigureAsTheDesignSays) {
  StudyPlace place;
  place.only({"first"});
  place.run();
  const auto results = place.results();
  ASSERT_EQ(results.at("rows").size(), 1u);
  const auto& row = results.at("rows").front();
  EXPECT_EQ(row.at("exhibit"), "first");
  EXPECT_EQ(row.at("published"), 3);
  EXPECT_EQ(row.at("ours"), 1);
  EXPECT_EQ(row.at("unit"), "ms");
  EXPECT_EQ(row.at("note"), "said");
  EXPECT_TRUE(holds(read_file(place.options.folder / "report.html"), "The first"));
}

TEST(Reproduce, OtherSettingsMakeAnExhibitAgain) {
  StudyPlace place;
  place.only({"first"});
  place.run();
  answer = 5;
  place.options.quick = true;
  StudyRecorder recorder;
  EXPECT_EQ(place.run(recorder).asked.exhibits[0].exhibit.rows[0].ours, 5);
  EXPECT_TRUE(recorder.noted("first was made with other settings (full; "));
  EXPECT_TRUE(place.results().at("quick"));
}

TEST(Reproduce, ADamagedExhibitIsMadeAgain) {
  StudyPlace place;
  place.only({"first"});
  place.run();
  for (const char* damage : {"", "{}", "{\"id\": 3}", "[1, 2"}) {
    write_file(place.options.folder / "exhibits" / "first.json", damage);
    StudyRecorder recorder;
    EXPECT_EQ(place.run(recorder).asked.exhibits.size(), 1u);
    EXPECT_EQ(recorder.begun.size(), 1u);
    EXPECT_TRUE(recorder.noted("first.json: is not an exhibit's result")) << damage;
  }
}

TEST(Reproduce, AnInterruptedStudyGoesOnWhereItStopped) {
  StudyPlace place;
  place.only({"first", "second"});
  StudyRecorder interrupted;
  interrupted.stop_in = "second";
  EXPECT_TRUE(place.run(interrupted).interrupted);
  EXPECT_EQ(interrupted.begun, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(place.results().at("rows").size(), 1u);  // no figure of the second
  StudyRecorder again;
  EXPECT_FALSE(place.run(again).interrupted);
  EXPECT_EQ(again.begun, std::vector<std::string>{"second"});
}

TEST(Reproduce, AnExhibitThatFailsSaysWhyAndTheOthersGoOn) {
  StudyPlace place;
  place.options.kinds = {{"broken", "Broken", false, 1, 1, broken},
                         {"greedy", "Too large", false, 1, 1, greedy},
                         {"first", "The first", false, 1, 1, plain}};
  const auto outcome = place.run();
  EXPECT_EQ(outcome.failed, (std::vector<std::string>{"broken: it broke",
                                                      "greedy: the system grants no more memory"}));
  ASSERT_EQ(outcome.asked.exhibits.size(), 3u);
  const auto rows = place.results().at("rows");
  EXPECT_TRUE(rows[0].at("ours").is_null());
  EXPECT_EQ(rows[0].at("note"), "not measured: it broke");
  EXPECT_EQ(rows[2].at("ours"), 1);
  EXPECT_EQ(place.results().at("finished"), false);
  StudyRecorder again;  // what failed is tried again
  place.run(again);
  EXPECT_EQ(again.begun, (std::vector<std::string>{"broken", "greedy"}));
}

TEST(Reproduce, RefusesWhatItCannotDo) {
  StudyPlace place;
  const auto refusal = [&] { return message_of([&] { place.run(); }); };
  place.only({"third"});
  EXPECT_EQ(refusal(), "--only is third, which is no exhibit: there are first, second, swept");
  place.only({});
  place.options.sweep = place.folder / "nothing";
  EXPECT_TRUE(holds(refusal(), "which holds no finished sweep"));
  place.options.sweep.clear();
  place.options.folder = place.corpus;
  EXPECT_TRUE(holds(refusal(), "it is not a directory"));
  pretend_sweep(place.folder / "a-sweep");
  place.options.folder = place.folder / "a-sweep";
  EXPECT_TRUE(holds(refusal(), "holds a run or a sweep, which reproduce would write over"));
  place.options.folder = place.folder / "new";
  place.options.sweep_config.data.corpus = (place.folder / "none.txt").string();
  EXPECT_TRUE(holds(refusal(), "none.txt"));
  EXPECT_EQ(made, 0);
}

TEST(Reproduce, TrainsASweepWhereThereIsNoneAndSaysSo) {
  StudyPlace place;
  place.only({"first", "swept"});
  StudyRecorder recorder;
  SweepRecorder sweep;
  experiments::reproduce(place.options, recorder, sweep);
  EXPECT_TRUE(recorder.noted("the trained models come from a sweep that is run now, in "));
  EXPECT_EQ(sweep.begun.size(), 4u);
  EXPECT_EQ(last_study.sweep, place.options.folder / "sweep");
  EXPECT_EQ(place.results().at("sweep"), (place.options.folder / "sweep").string());
  SweepRecorder again;
  experiments::reproduce(place.options, recorder, again);
  EXPECT_TRUE(again.begun.empty());
  const std::string html = read_file(place.options.folder / "report.html");
  EXPECT_TRUE(holds(html, "a sweep of configs/gqa-quick.yaml run for this study"));
}

TEST(Reproduce, AnInterruptedSweepGoesOnAndAnotherSweepIsAnotherSetting) {
  StudyPlace place;
  place.only({"swept"});
  StudyRecorder recorder;
  SweepRecorder interrupted, rest;
  interrupted.stop_after_run = 1;
  EXPECT_TRUE(experiments::reproduce(place.options, recorder, interrupted).interrupted);
  EXPECT_EQ(made, 0);
  experiments::reproduce(place.options, recorder, rest);
  EXPECT_EQ(rest.begun.size(), 3u);
  const fs::path models = last_study.folder;
  pretend_sweep(place.folder / "other", "{\"finished\": true, \"other\": 1}");
  place.options.sweep = place.folder / "other";
  place.run(recorder);
  EXPECT_TRUE(recorder.noted("swept was made with other settings"));
  EXPECT_TRUE(recorder.noted("the trained models come from the finished sweep in "));
  EXPECT_EQ(made, 2);
  EXPECT_NE(last_study.folder, models);  // what one sweep's exhibits train is not another's
}

TEST(Reproduce, FindsTheSweepThatLiesInItsFolder) {
  const TemporaryFolder folder;
  const auto find = [&](bool quick) {
    return experiments::find_sweep(folder.path(), quick).filename().string();
  };
  EXPECT_EQ(find(true), "");
  pretend_sweep(folder / "half", "{\"finished\": false}");
  pretend_sweep(folder / "odd", "{\"finished\": \"yes\"}");
  pretend_sweep(folder / "sweep-quick");
  EXPECT_EQ(find(false), "");
  EXPECT_EQ(find(true), "sweep-quick");
  pretend_sweep(folder / "gqa");
  EXPECT_EQ(find(false), "gqa");
  pretend_sweep(folder / "sweep");
  EXPECT_EQ(find(true), "sweep");
}

TEST(Reproduce, TimeLeftCountsTheExhibitsToCome) {
  StudyPlace place;
  place.only({"first", "second"});
  StudyRecorder recorder;
  place.run(recorder);
  ASSERT_EQ(recorder.seconds_left.size(), 4u);
  EXPECT_DOUBLE_EQ(recorder.seconds_left[0], 30);  // 10 and 20, before any pace is known
  EXPECT_NEAR(recorder.seconds_left[3], 0, 1);
}

}  // namespace
}  // namespace headroom::testing
