// headroom train and eval as a user sees them: kills and signals (CKP-01), progress (UX-01),
// results.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "configs/print.h"
#include "tensor/safetensors.h"
#include "train_run.h"

namespace headroom::testing {

namespace {

using Arguments = std::vector<std::string>;

/// A workplace with config.yaml, and the program's arguments for it.
struct Desk : Workplace {
  explicit Desk(const configs::Config& config) {
    write_file(folder / "config.yaml", configs::to_yaml(config));
  }
  Arguments train(const std::string& run, const Arguments& more = {}) const {
    Arguments all = {"train", (folder / "config.yaml").string(), "--out", (folder / run).string(),
                     "--set", "data.corpus=" + corpus.string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

/// As `small_config`, but larger and saved after every step, so that most kills meet a save.
configs::Config busy_config() {
  configs::Config config = small_config("");
  config.model.n_embd = 128;
  config.model.given_n_ff = 512;
  config.model.n_layer = 4;
  config.train.steps = 40;
  config.train.eval_every = 0;
  config.train.save_every = 1;
  return config;
}

int64_t saved_step(const std::filesystem::path& run) {
  return std::stoll(SafetensorsFile(run / "last.safetensors").metadata().at("step"));
}

}  // namespace

TEST(TrainCommand, SurvivesKillsAtAnyMoment) {
  const Desk desk(busy_config());
  const auto run = desk.folder / "run";
  const RandomStream random(1, "kills");
  int64_t before = 0;
  int killed = 0;
  for (uint64_t kill = 0; kill < 20; ++kill) {
    Program program(desk.train("run", {"--resume"}));
    ASSERT_TRUE(program.wait_for_err("budget")) << program.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(random.integer(kill, 120)));
    program.send(SIGKILL);
    const RunResult result = program.wait();
    killed += result.signal == SIGKILL ? 1 : 0;
    if (result.signal == 0) {
      ASSERT_EQ(result.status, 0) << result.err;
    }
    if (std::filesystem::exists(run / "last.safetensors")) {
      const int64_t step = saved_step(run);
      EXPECT_GE(step, before);
      before = step;
    }
  }
  EXPECT_GT(killed, 3);
  ASSERT_EQ(run_program(desk.train("run", {"--resume"})).status, 0);
  ASSERT_EQ(run_program(desk.train("straight")).status, 0);
  EXPECT_EQ(read_file(run / "last.safetensors"),
            read_file(desk.folder / "straight" / "last.safetensors"));
  EXPECT_EQ(metrics_of(run), metrics_of(desk.folder / "straight"));
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    EXPECT_NE(entry.path().extension(), ".headroom-tmp") << entry.path();
  }
}

TEST(TrainCommand, ASignalFinishesTheStepSavesAndExits130) {
  for (const int signal : {SIGINT, SIGTERM}) {
    configs::Config config = busy_config();
    config.train.steps = 100000;
    config.train.save_every = 0;
    const Desk desk(config);
    Program program(desk.train("run"));
    ASSERT_TRUE(program.wait_for_err("step 1/")) << program.err();
    program.send(signal);
    const RunResult result = program.wait();
    EXPECT_EQ(result.status, 130) << result.err;
    const int64_t step = saved_step(desk.folder / "run");
    EXPECT_NE(result.err.find(fmt::format("interrupted after step {}, which is saved in {}", step,
                                          (desk.folder / "run" / "last.safetensors").string())),
              std::string::npos)
        << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(TrainCommand, ASecondSignalEndsAtOnceWithoutHarm) {
  configs::Config config = busy_config();
  config.train.steps = 100000;
  const Desk desk(config);
  Program program(desk.train("run"));
  ASSERT_TRUE(program.wait_for_err("step 1/")) << program.err();
  // The line about a step comes before its save.
  const std::filesystem::path last = desk.folder / "run" / "last.safetensors";
  for (int i = 0; i < 3000 && !std::filesystem::exists(last); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(std::filesystem::exists(last)) << program.err();
  program.send(SIGINT);
  program.send(SIGINT);
  EXPECT_EQ(program.wait().status, 130);
  EXPECT_GE(saved_step(desk.folder / "run"), 1);
}

TEST(TrainCommand, PrintsLinesInALogAndTheResultOnStdout) {
  configs::Config config = small_config("");
  config.train.steps = 200;
  config.train.eval_every = 50;
  const Desk desk(config);
  const RunResult result = run_program(desk.train("run", {"--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err.find('\r'), std::string::npos);
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
  EXPECT_EQ(result.err.back(), '\n');
  for (const char* text :
       {"corpus     corpus.txt, vocabulary 16", "parameters, cache 128 bytes", "fp32; 1 thread,",
        "step 1/200 ", "step 200/200 ", "step 150: validation loss "}) {
    EXPECT_NE(result.err.find(text), std::string::npos) << text << "\n" << result.err;
  }
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 70);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("step"), 200);
  EXPECT_EQ(json.at("tokens"), 200 * 4 * 16);
  const auto metrics = metrics_of(desk.folder / "run");
  EXPECT_EQ(json.at("final_loss_nats"), metrics.back().at("val_loss"));

  const RunResult quiet = run_program(desk.train("quiet", {"--quiet"}));
  EXPECT_EQ(quiet.err, "");
  EXPECT_NE(quiet.out.find("best validation loss"), std::string::npos);
}

TEST(TrainCommand, PaintsOneLineOnANarrowTerminal) {
  configs::Config config = small_config("");
  config.train.eval_every = 0;
  const Desk desk(config);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 20;
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Arguments arguments = desk.train("run");
    std::vector<char*> words = {const_cast<char*>(HEADROOM_PROGRAM)};
    for (const std::string& each : arguments) words.push_back(const_cast<char*>(each.c_str()));
    words.push_back(nullptr);
    ::execv(HEADROOM_PROGRAM, words.data());
    ::_exit(127);
  }
  std::string screen;
  char buffer[4096];
  for (ssize_t got; (got = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    screen.append(buffer, static_cast<size_t>(got));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0) << screen;
  ::close(terminal);
  int painted = 0;
  for (size_t at = 0; (at = screen.find('\r', at)) != std::string::npos; ++at) {
    const size_t end = screen.find("\x1b[K", at);
    if (screen[at + 1] == '\n' || end == std::string::npos) continue;
    EXPECT_LE(end - at - 1, 19U) << screen.substr(at, 40);
    ++painted;
  }
  EXPECT_EQ(painted, 20);
  EXPECT_NE(screen.find("\r20/20 "), std::string::npos) << screen;
}

TEST(TrainCommand, RefusesARunThatIsThereAndAFolderThatCantBe) {
  const Desk desk(small_config(""));
  ASSERT_EQ(run_program(desk.train("run")).status, 0);
  const RunResult again = run_program(desk.train("run"));
  EXPECT_EQ(again.status, 2);
  EXPECT_NE(again.err.find("finished (step 20): --resume"), std::string::npos) << again.err;
  const RunResult resumed = run_program(desk.train("run", {"--resume", "--json"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(nlohmann::json::parse(resumed.out).at("step"), 20);
  EXPECT_NE(run_program(desk.train("corpus.txt")).status, 0);
}

TEST(EvalCommand, GivesTheLossThatTrainingMeasured) {
  const Desk desk(small_config(""));
  ASSERT_EQ(run_program(desk.train("run")).status, 0);
  const auto metrics = metrics_of(desk.folder / "run");
  const std::string run = (desk.folder / "run").string();
  const RunResult result = run_program({"eval", run, "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("loss_nats"), metrics.back().at("val_loss"));
  EXPECT_EQ(json.at("tokens"), 299);
  EXPECT_EQ(json.at("window"), 16);
  EXPECT_EQ(json.at("stride"), 16);

  const auto whole =
      nlohmann::json::parse(run_program({"eval", run, "--json", "--split", "all"}).out);
  EXPECT_EQ(whole.at("tokens"), 2999);
  const auto strided = nlohmann::json::parse(
      run_program({"eval", run, "--json", "--stride", "4", "--context", "8"}).out);
  EXPECT_EQ(strided.at("window"), 8);
  EXPECT_EQ(strided.at("stride"), 4);
  EXPECT_EQ(strided.at("tokens"), 299);
  EXPECT_NE(strided.at("loss_nats"), json.at("loss_nats"));

  write_file(desk.folder / "other.txt", "who goes 7here");
  const RunResult other = run_program(
      {"eval", run, "--corpus", (desk.folder / "other.txt").string(), "--split", "all"});
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("U+0037"), std::string::npos) << other.err;
  EXPECT_EQ(run_program({"eval", run, "--split", "test"}).status, 2);

  // Streams of the context under a cache without a window are windows; a window changes the loss.
  for (const std::string cache : {"static", "none"}) {
    const auto stream =
        nlohmann::json::parse(run_program({"eval", run, "--json", "--cache", cache}).out);
    EXPECT_NEAR(stream.at("loss_nats"), json.at("loss_nats"), 1e-6);
    EXPECT_NEAR(stream.at("bits_per_byte"), json.at("bits_per_byte"), 1e-6);
    EXPECT_EQ(stream.at("tokens"), 299);
    EXPECT_EQ(stream.at("streams"), 19);
    EXPECT_EQ(stream.at("cache_tokens"), cache == "none" ? 0 : 16);
  }
  const auto window = nlohmann::json::parse(
      run_program({"eval", run, "--json", "--cache", "static,window=8,sinks=2"}).out);
  EXPECT_EQ(window.at("streams"), 1);
  EXPECT_EQ(window.at("context"), 299);
  EXPECT_EQ(window.at("cache"), "static,window=8,sinks=2");
  EXPECT_NE(window.at("loss_nats"), json.at("loss_nats"));
  const RunResult both = run_program({"eval", run, "--cache", "static", "--stride", "4"});
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.err.find("--stride 4 is for windows that overlap, but --cache static"),
            std::string::npos)
      << both.err;
  EXPECT_EQ(run_program({"eval", (desk.folder / "nothing").string()}).status, 2);
}

}  // namespace headroom::testing
