// headroom sweep as a user sees it: what stands on stdout and on stderr, kills and Ctrl-C, refusals
// and their statuses, the three kinds of fairness.
#include <gtest/gtest.h>

#include <csignal>

#include "configs/print.h"
#include "sweep_run.h"

namespace headroom::testing {

namespace {

using Arguments = std::vector<std::string>;
using nlohmann::json;

/// A workplace with tiny.yaml: two models, two seeds.
struct SweepDesk : Workplace {
  SweepDesk() { write_file(folder / "tiny.yaml", configs::to_yaml(small_sweep(corpus))); }
  Arguments sweep(const std::string& out, const Arguments& more = {}) const {
    Arguments all = {"sweep", (folder / "tiny.yaml").string(), "--out", (folder / out).string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

/// Drawing charts takes longer than these runs: without gnuplot there are none.
RunOptions without_charts() { return {.environment = {{"PATH", "/nonexistent"}}}; }

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// The lines of the printed table that begin with a row's n_kv_head.
std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : lines_of(table)) {
    if (!line.empty() && line[0] >= '0' && line[0] <= '9') rows.push_back(words_of(line));
  }
  return rows;
}

}  // namespace

TEST(SweepCommand, PrintsTheTableOnStdoutAndProgressOnStderr) {
  const SweepDesk desk;
  const RunResult result = run_program(desk.sweep("sweep"));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(words_of(lines_of(result.out)[0]).front(), "n_kv_head");
  const auto rows = rows_of(result.out);
  ASSERT_EQ(rows.size(), 4U);  // two tables of two models
  EXPECT_EQ(rows[0][0], "4");
  EXPECT_EQ(rows[0][1], "2,352");
  EXPECT_EQ(rows[0][2] + " " + rows[0][3], "128 B");
  EXPECT_EQ(rows[1][0], "2");
  EXPECT_TRUE(holds(result.out, "Corpus: corpus.txt"));
  for (const char* progress : {"step", "left", "run 1 of 4", "Unfinished", "headroom:"}) {
    EXPECT_FALSE(holds(result.out, progress)) << progress;
  }
  for (const char* progress :
       {"run 1 of 4: n_kv_head 4, seed 1", "run 4 of 4: n_kv_head 2, seed 2", "4/4 step 20/20",
        "2/4 step 10: validation loss", "Unfinished: 3 of 4 runs are done.", "report.html"}) {
    EXPECT_TRUE(holds(result.err, progress)) << progress;
  }
  EXPECT_FALSE(holds(result.err, "\x1b"));  // it is no terminal
}

TEST(SweepCommand, QuietLeavesTheResult) {
  const SweepDesk desk;
  const RunResult table = run_program(desk.sweep("sweep", {"--quiet"}));
  EXPECT_EQ(table.err, "");
  EXPECT_EQ(rows_of(table.out).size(), 4U);
  const RunResult again = run_program(desk.sweep("sweep", {"--quiet", "--json", "--resume"}));
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(json::parse(again.out), results_of(desk.folder / "sweep"));
  const RunResult refused = run_program(desk.sweep("sweep", {"--quiet"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "--resume"));
}

TEST(SweepCommand, SurvivesKillsBetweenAndInsideRuns) {
  const SweepDesk desk;
  ASSERT_EQ(run_program(desk.sweep("straight", {"--quiet"}), without_charts()).status, 0);
  const json expected = without_times(results_of(desk.folder / "straight"));
  Arguments again = {};
  int killed = 0;
  for (const char* moment : {"1/4 step 3/", "Unfinished: 1 of 4", "step 13/", "validation loss"}) {
    Program program(desk.sweep("sweep", again), without_charts());
    program.wait_for_err(moment);
    program.send(SIGKILL);
    killed += program.wait().signal == SIGKILL ? 1 : 0;
    again = {"--resume"};
  }
  EXPECT_GE(killed, 2);  // on a busy machine the last ones may come too late
  const RunResult result = run_program(desk.sweep("sweep", again), without_charts());
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(without_times(results_of(desk.folder / "sweep")), expected);
  for (const char* file : {"kv4-seed1/best.safetensors", "kv2-seed2/last.safetensors"}) {
    EXPECT_EQ(read_file(desk.folder / "sweep" / file), read_file(desk.folder / "straight" / file));
  }
}

TEST(SweepCommand, CtrlCSavesAndExits130) {
  const SweepDesk desk;
  ASSERT_EQ(run_program(desk.sweep("straight", {"--quiet"}), without_charts()).status, 0);
  Program program(desk.sweep("sweep"), without_charts());
  ASSERT_TRUE(program.wait_for_err("2/4 step 3/"));
  program.send(SIGINT);
  const RunResult stopped = program.wait();
  EXPECT_EQ(stopped.status, 130);
  EXPECT_EQ(stopped.out, "");
  EXPECT_TRUE(holds(stopped.err, "interrupted after ")) << stopped.err;
  EXPECT_TRUE(holds(stopped.err, "of 4 runs; what is done is in"));
  // The folder knows its config, and is its own place.
  const RunResult resumed =
      run_program({"sweep", (desk.folder / "sweep").string(), "--resume"}, without_charts());
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(holds(resumed.err, "of 4 runs are finished and kept"));
  EXPECT_EQ(without_times(results_of(desk.folder / "sweep")),
            without_times(results_of(desk.folder / "straight")));
}

TEST(SweepCommand, RefusesWithStatus2NamingKeyAndValues) {
  const SweepDesk desk;
  ASSERT_EQ(run_program(desk.sweep("sweep", {"--quiet"}), without_charts()).status, 0);
  write_file(desk.folder / "short.txt", "too short");
  const struct {
    Arguments arguments;
    Arguments words;
  } cases[] = {
      {desk.sweep("sweep"), {"holds a sweep", "--resume"}},
      {desk.sweep("sweep", {"--resume", "--set", "train.lr=0.5"}), {"train.lr", "0.02", "0.5"}},
      {desk.sweep("sweep", {"--resume", "--set", "model.n_layer=3"}), {"model.n_layer", "1", "3"}},
      {desk.sweep("new", {"--set", "sweep.n_kv_head=[4,3]"}), {"sweep.n_kv_head", "3", "4"}},
      {desk.sweep("new", {"--set", "sweep.seeds=[1,1]"}), {"sweep.seeds", "[1, 1]"}},
      {desk.sweep("new", {"--set", "data.corpus=" + (desk.folder / "short.txt").string()}),
       {"8 tokens", "block_size 16"}},
      {desk.sweep("corpus.txt"), {"corpus.txt", "not a directory"}},
      {desk.sweep("sweep/kv4-seed1"), {"kv4-seed1", "training run"}},
  };
  for (const auto& [arguments, words] : cases) {
    const RunResult result = run_program(arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;  // nothing was begun
    for (const std::string& word : words) EXPECT_TRUE(holds(result.err, word)) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(desk.folder / "new"));
}

TEST(SweepCommand, AFolderThatCantBeMadeIsAFailure) {
  const SweepDesk desk;
  Arguments arguments = desk.sweep("");
  arguments[3] = "/proc/headroom/sweep";
  const RunResult result = run_program(arguments);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(holds(result.err, "/proc/headroom/sweep")) << result.err;
  EXPECT_FALSE(holds(result.err, "run 1 of"));
}

TEST(SweepCommand, ADivergedRunIsAResult) {
  const SweepDesk desk;
  const RunResult result =
      run_program(desk.sweep("sweep", {"--set", "train.lr=1e6", "--set", "train.adamw_lr=1e6",
                                       "--set", "sweep.seeds=[1]"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(holds(result.err, "counts as diverged"));
  EXPECT_TRUE(holds(result.out, "a run diverged: no verdict"));
}

TEST(SweepCommand, FairnessMovesWhatTheHeadsSave) {
  const SweepDesk desk;
  const Arguments base = {"--quiet", "--set", "sweep.seeds=[1]", "--set", "sweep.n_kv_head=[4,1]"};
  Arguments cache = base, params = base;
  cache.insert(cache.end(), {"--set", "sweep.fair=same-cache"});
  params.insert(params.end(), {"--set", "sweep.fair=same-params"});

  const RunResult layers = run_program(desk.sweep("cache", cache), without_charts());
  ASSERT_EQ(layers.status, 0) << layers.err;
  const auto header = words_of(lines_of(layers.out)[0]);
  EXPECT_EQ((Arguments{header[1], header[2], header[3], header[4]}),
            (Arguments{"layers", "parameters", "cache/token", "tokens"}));
  const auto deep = rows_of(layers.out);
  EXPECT_EQ(deep[0][1], "1");
  EXPECT_EQ(deep[1][1], "4");
  EXPECT_EQ(deep[0][3], deep[1][3]);  // the same cache
  EXPECT_EQ(deep[0][5], "1.28");      // thousand
  // FLOP per token: 6 * 2304 + 6 * 16 * 17 = 15456 against 6 * 6912 + 4 * 6 * 16 * 17 = 48000, so
  // 6 of the 20 steps remain.
  EXPECT_EQ(deep[1][5], std::to_string(6 * 64));

  const RunResult widths = run_program(desk.sweep("params", params), without_charts());
  ASSERT_EQ(widths.status, 0) << widths.err;
  EXPECT_EQ(words_of(lines_of(widths.out)[0])[1], "n_ff");
  const auto wide = rows_of(widths.out);
  EXPECT_EQ(wide[0][1], "32");
  EXPECT_EQ(wide[1][1], "44");  // 2 * 16 * 4 * 3 = 384 parameters saved, 32 for each unit
  EXPECT_EQ(wide[0][2], wide[1][2]);
}

}  // namespace headroom::testing
