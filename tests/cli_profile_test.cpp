// --profile as a user sees it: the trace adds up and names every kernel, the table is on stderr,
// and neither changes what a command does.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "cli_random_run.h"
#include "configs/print.h"
#include "train_run.h"

namespace headroom::testing {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

struct Event {
  std::string name;
  bool kernel;
  int64_t begin, end;  // ns
  bool holds(const Event& other) const { return begin <= other.begin && other.end <= end; }
};

int64_t nanoseconds(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1e3);
}

/// The complete events of a trace file, in order of time, the outer ones of equals first.
std::vector<Event> read_trace(const std::filesystem::path& file) {
  const json trace = json::parse(read_file(file));
  std::vector<Event> events;
  for (const json& each : trace.at("traceEvents")) {
    if (each.at("ph") == "X") {
      const int64_t begin = nanoseconds(each.at("ts"));
      events.push_back({each.at("name"), each.at("cat") == "kernel", begin,
                        begin + nanoseconds(each.at("dur"))});
      EXPECT_EQ(each.at("pid"), 1);
      EXPECT_EQ(each.at("tid"), 1);
    }
  }
  std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return events;
}

std::vector<Event> named(const std::vector<Event>& events, const std::string& name) {
  std::vector<Event> found;
  std::ranges::copy_if(events, std::back_inserter(found),
                       [&](const Event& event) { return event.name == name; });
  return found;
}

/// How often a kernel ran within each occurrence of a phase.
std::vector<int64_t> calls_in(const std::vector<Event>& events, const std::string& kernel,
                              const std::string& phase) {
  std::vector<int64_t> counts;
  for (const Event& outer : named(events, phase)) {
    counts.push_back(std::ranges::count_if(events, [&](const Event& event) {
      return event.kernel && event.name == kernel && outer.holds(event);
    }));
  }
  return counts;
}

std::set<std::string> kernels_of(const std::vector<Event>& events) {
  std::set<std::string> names;
  for (const Event& event : events) {
    if (event.kernel) {
      names.insert(event.name);
    }
  }
  return names;
}

/// A workplace with a config of a few steps that evaluates and saves once.
struct ProfileDesk : Workplace {
  explicit ProfileDesk(int64_t steps = 3) {
    configs::Config small = config();
    small.train.steps = steps;
    small.train.eval_every = small.train.save_every = 0;
    write_file(folder / "config.yaml", configs::to_yaml(small));
  }
  RunResult train(const std::string& run, const Arguments& more, RunOptions options = {}) const {
    Arguments all = {"train", "config.yaml", "--out", run};
    all.insert(all.end(), more.begin(), more.end());
    options.directory = folder.path();
    return run_program(all, options);
  }
};

constexpr int64_t kProfiledLayers = 2;
using Counts = std::vector<int64_t>;

TEST(Profile, OfTrainingAddsUpAndCountsEveryProduct) {
  const ProfileDesk desk;
  const RunResult result = desk.train("run", {"--profile"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::vector<Event> events = read_trace(desk.folder / "headroom-trace.json");

  std::vector<Event> around;
  for (const Event& event : events) {
    while (!around.empty() && event.begin >= around.back().end) {
      around.pop_back();
    }
    ASSERT_TRUE(around.empty() || (around.back().holds(event) && !around.back().kernel))
        << event.name << " in " << around.back().name;
    around.push_back(event);
  }

  const std::vector<Event> steps = named(events, "training step");
  ASSERT_EQ(steps.size(), 3U);
  for (const Event& step : steps) {
    int64_t kernels = 0;
    for (const Event& event : events) {
      kernels += event.kernel && step.holds(event) ? event.end - event.begin : 0;
    }
    EXPECT_GT(kernels, 0);
    EXPECT_LE(kernels, step.end - step.begin);
  }
  // q, k, v, o, up and down of every layer, and the head, whose two gradients are made at once.
  EXPECT_EQ(calls_in(events, "linear", "forward"), Counts(3, 6 * kProfiledLayers));
  EXPECT_EQ(calls_in(events, "matmul", "forward"), Counts(3, 3));
  EXPECT_EQ(calls_in(events, "matmul", "backward"), Counts(3, 12 * kProfiledLayers));
  EXPECT_EQ(calls_in(events, "matmul", "clip"), Counts(3, 0));
  // Muon: five steps of three products for each shape of matrix: of q and o, k and v, up, down.
  EXPECT_EQ(calls_in(events, "matmul", "optimizer"), Counts(3, 4 * 15));
  EXPECT_EQ(calls_in(events, "attention", "forward"), Counts(3, kProfiledLayers));
  EXPECT_EQ(calls_in(events, "attention_backward", "backward"), Counts(3, kProfiledLayers));
  EXPECT_EQ(calls_in(events, "sum_of_squares", "clip"), Counts(3, 1));
  EXPECT_EQ(calls_in(events, "adamw", "optimizer"), Counts(3, 1));
  EXPECT_EQ(named(events, "evaluation").size(), 1U);
  EXPECT_EQ(named(events, "save").size(), 1U);
  for (const std::string name :
       {"fill", "scale", "activation", "activation_backward", "embedding", "embedding_backward",
        "norm", "norm_backward", "rope_table", "rope", "cross_entropy"}) {
    EXPECT_TRUE(kernels_of(events).contains(name)) << name;
  }

  for (const char* text :
       {"training step: 3 times, each ", "evaluation: once ", "  attention_backward",
        "  outside kernels", "events in headroom-trace.json"}) {
    EXPECT_NE(result.err.find(text), std::string::npos) << text << "\n" << result.err;
  }
}

TEST(Profile, ChangesNoNumber) {
  const ProfileDesk desk;
  const Arguments other = {"--set", "model.bias=all",       "--set", "model.norm=layernorm",
                           "--set", "model.mlp=swiglu",     "--set", "model.logit_softcap=5",
                           "--set", "model.dropout=0.1",    "--set", "model.position=learned",
                           "--set", "train.optimizer=adamw"};
  for (const Arguments& variant : {Arguments(), other}) {
    const std::string name = variant.empty() ? "plain" : "other";
    Arguments profiled = variant;
    profiled.push_back("--profile=" + name + ".json");
    ASSERT_EQ(desk.train(name, variant).status, 0);
    ASSERT_EQ(desk.train(name + "-profiled", profiled).status, 0);
    EXPECT_EQ(read_file(desk.folder / name / "last.safetensors"),
              read_file(desk.folder / (name + "-profiled") / "last.safetensors"));
  }
  for (const std::string kernel : {"linear", "sum_rows", "swiglu", "swiglu_backward", "softcap",
                                   "softcap_backward", "dropout"}) {
    EXPECT_TRUE(kernels_of(read_trace(desk.folder / "other.json")).contains(kernel)) << kernel;
  }
}

TEST(Profile, OfGenerationHasEveryDecodeStep) {
  const RandomRun run;
  const Arguments how = {"--prompt", "abc de.", "--tokens", "7"};
  Arguments profiled = how;
  const std::filesystem::path file = run.file("trace.json", "");
  profiled.push_back("--profile=" + file.string());
  const RunResult result = run.generate(profiled);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, run.text(how));
  const std::vector<Event> events = read_trace(file);
  EXPECT_EQ(calls_in(events, "attention", "prefill"), Counts(1, kProfiledLayers));
  // The first token comes from the prefill's logits.
  EXPECT_EQ(calls_in(events, "attention", "decode step"), Counts(6, kProfiledLayers));
  EXPECT_EQ(calls_in(events, "linear", "decode step"), Counts(6, 4 * kProfiledLayers + 1));
  EXPECT_EQ(calls_in(events, "sample", "decode step"), Counts(6, 1));
  EXPECT_EQ(named(events, "sample").size(), 7U);
}

TEST(Profile, OfAProofHasBothPasses) {
  const RandomRun run;
  const std::filesystem::path file = run.file("trace.json", "");
  const RunResult result =
      run_program({"verify-cache", run.path().string(), "--profile=" + file.string()});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::vector<Event> events = read_trace(file);
  EXPECT_FALSE(named(events, "cached pass").empty());
  EXPECT_FALSE(named(events, "uncached pass").empty());
}

TEST(Profile, IsWrittenHoweverTheCommandEnds) {
  const ProfileDesk failing(50);  // its loss stops being a number
  const RunResult failed =
      failing.train("run", {"--profile", "--set", "train.lr=1e6", "--set", "model.mlp=relu2",
                            "--set", "train.optimizer=adamw"});
  EXPECT_EQ(failed.status, 1) << failed.err;
  EXPECT_NE(failed.err.find("training step: "), std::string::npos) << failed.err;
  EXPECT_FALSE(named(read_trace(failing.folder / "headroom-trace.json"), "training step").empty());

  const ProfileDesk endless(1'000'000);
  Program program({"train", (endless.folder / "config.yaml").string(), "--profile"},
                  {.directory = endless.folder.path()});
  ASSERT_TRUE(program.wait_for_err("step 1/")) << program.err();
  program.send(SIGINT);
  const RunResult interrupted = program.wait();
  EXPECT_EQ(interrupted.status, 130) << interrupted.err;
  EXPECT_FALSE(named(read_trace(endless.folder / "headroom-trace.json"), "training step").empty());
}

TEST(Profile, TakesAFileAndSaysWhatIsWrongWithIt) {
  const ProfileDesk desk;
  const RunResult nowhere = desk.train("run", {"--profile=nowhere/trace.json"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_NE(nowhere.err.find("--profile: there is no folder nowhere"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(desk.folder / "run"));
  const RunResult refused = desk.train("run", {"--profile", "--set", "train.lr=1e30"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(desk.folder / "headroom-trace.json"));

  const RunResult quiet = desk.train("quiet", {"--profile=quiet.json", "--quiet"});
  EXPECT_EQ(quiet.status, 0);
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(named(read_trace(desk.folder / "quiet.json"), "training step").size(), 3U);

  const RunResult folder = desk.train("run", {"--profile=quiet"});  // the run's folder
  EXPECT_EQ(folder.status, 1);
  EXPECT_NE(folder.out.find("best validation loss"), std::string::npos);
  EXPECT_NE(folder.err.find("quiet"), std::string::npos);

  const RunResult idle =
      run_program({"plan", "gqa", "--profile"}, {.directory = desk.folder.path()});
  EXPECT_EQ(idle.status, 0);
  EXPECT_NE(idle.err.find("no kernels ran in any phase"), std::string::npos) << idle.err;
}

}  // namespace
}  // namespace headroom::testing
