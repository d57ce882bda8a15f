// The program with several workers on the harness's GPUs, started by torchrun's variables and by
// mpirun: they train what one does on the CPU, share a sweep's runs, and one that fails ends all.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "configs/print.h"
#include "contains.h"
#include "golden.h"
#include "simt/program.h"
#include "sweep_run.h"
#include "tensor/safetensors.h"
#include "train_run.h"
#include "worker_processes.h"

namespace headroom::testing {
namespace {

/// Two workers started as torchrun does, the second one with variables of its own, the first one by
/// a launcher of its own.
struct Two {
  const int port = free_port() - 1;
  Program first, second;
  Two(const Arguments& one, const Arguments& other, Variables variables = {},
      const Arguments& launcher = {})
      : first(one, on_gpus(torchrun(0, 2, port), launcher)),
        second(other, on_gpus([&] {
                 variables.merge(torchrun(1, 2, port));
                 return variables;
               }())) {}
  std::vector<RunResult> wait() { return {first.wait(), second.wait()}; }
};

/// A worker that another one's failure ended says nothing of it.
void expect_ended_silently(const RunResult& result, int status) {
  EXPECT_EQ(result.status, status);
  const std::string meeting = "headroom: worker 0: 2 workers meet at ";
  EXPECT_EQ(result.err.rfind("headroom: "), result.err.find(meeting)) << result.err;
}

class WorkersOfTheProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    configs::Config config = work_.config();
    config.model.n_layer = 1;
    config.train.steps = 3;
    config.train.batch_size = 2;
    config.train.grad_accumulation = 2;
    config.train.warmup_steps = 0;
    config.train.eval_every = config.train.save_every = 3;
    write_file(config_, configs::to_yaml(config));
    setenv("TMPDIR", work_.folder.path().c_str(),
           1);  // where a worker that was ended leaves things
  }
  void TearDown() override { unsetenv("TMPDIR"); }
  Arguments train(const std::string& run, const Arguments& more = {}) const {
    Arguments all = {"train", config_.string(), "--out", (work_.folder / run).string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Arguments train_on_gpus(const std::string& run, Arguments more = {}) const {
    more.insert(more.end(), {"--device", "cuda"});
    return train(run, more);
  }
  static void expect_told_once(const Arguments& command, const std::string& what) {
    const std::vector<RunResult> results = Two(command, command).wait();
    EXPECT_EQ(results[0].status, 2);
    EXPECT_TRUE(contains(results[0].err, "headroom: worker 0: ")) << results[0].err;
    EXPECT_TRUE(contains(results[0].err, what)) << results[0].err;
    expect_ended_silently(results[1], 2);
  }
  void expect_as_one(const std::string& run) const {
    const auto these = metrics_of(work_.folder / run), those = metrics_of(work_.folder / "one");
    ASSERT_EQ(these.size(), those.size());
    for (size_t i = 0; i < these.size(); ++i) {
      for (const char* key : {"loss", "val_loss", "grad_norm"}) {
        ASSERT_EQ(these[i].contains(key), those[i].contains(key));
        if (those[i].contains(key)) {
          EXPECT_NEAR(these[i][key].get<double>(), those[i][key].get<double>(), 1e-4)
              << run << " " << these[i] << " " << those[i];
        }
      }
    }
  }

  const Workplace work_{600};
  const std::filesystem::path config_ = work_.folder / "config.yaml";
};

TEST_F(WorkersOfTheProgram, TrainWhatOneDoesWithShardedOptimizersToo) {
  ASSERT_EQ(run_program(train("one")).status, 0);
  for (const bool sharded : {false, true}) {
    const std::string run = sharded ? "sharded" : "whole";
    const Arguments command =
        train_on_gpus(run, {"--set", fmt::format("train.shard_optimizer={}", sharded)});
    const std::vector<RunResult> results = Two(command, command).wait();
    EXPECT_EQ(results[0].status, 0) << results[0].err;
    EXPECT_EQ(results[1].status, 0) << results[1].err;
    EXPECT_TRUE(contains(results[0].out, "run folder")) << results[0].out;
    EXPECT_EQ(results[1].out, "");
    expect_as_one(run);
  }
  const SafetensorsFile whole(work_.folder / "whole" / "last.safetensors"),
      sharded(work_.folder / "sharded" / "last.safetensors");
  ASSERT_EQ(whole.tensors().size(), sharded.tensors().size());
  for (const auto& [name, info] : whole.tensors()) {
    EXPECT_LE(max_relative_error(sharded.read(name), whole.read(name)), 1e-6) << name;
  }
}

/// NCCL documents no order of its sums, so that train.deterministic promises nothing here.
TEST_F(WorkersOfTheProgram, DoNotCallThemselvesDeterministic) {
  const std::vector<RunResult> results = Two(train_on_gpus("run"), train_on_gpus("run")).wait();
  EXPECT_EQ(results[0].status, 0) << results[0].err;
  EXPECT_TRUE(contains(results[0].err, "cuda:0 (not deterministic)")) << results[0].err;
}

/// What counts is how many work, not how many GPUs there are.
TEST_F(WorkersOfTheProgram, AreStartedByMpirunTooBesideGpusThatRest) {
  if (contains(run_program({"--version"}).out, "built without MPI")) {
    GTEST_SKIP() << "built without MPI";
  }
  ASSERT_EQ(run_program(train("one")).status, 0);
  for (const std::string count : {"2", "4"}) {
    const RunResult result = run_program(train_on_gpus("of" + count),
                                         on_gpus({{"SIMT_DEVICES", "4"}}, {"mpirun", "-n", count}));
    ASSERT_EQ(result.status, 0) << result.err;
    expect_as_one("of" + count);
  }
}

/// The second run is the second worker's; the first worker reads it and draws its sample.
TEST_F(WorkersOfTheProgram, ShareTheRunsOfASweep) {
  configs::Config config = small_sweep(work_.corpus);
  config.model.position = configs::Position::learned;  // samples end with the context
  config.train.steps = config.train.eval_every = 2;  // the warm-up is clipped to them, with a note
  config.train.batch_size = 2;
  config.sweep.seeds = {1};
  write_file(config_, configs::to_yaml(config));
  const auto sweep = [this](const std::string& folder) {
    return Arguments{
        "sweep", config_.string(), "--out", (work_.folder / folder).string(), "--device", "cuda"};
  };
  const auto rows = [this](const std::string& folder) {
    return without_times(results_of(work_.folder / folder)).at("rows");
  };
  const RunResult alone = run_program(sweep("alone"), on_gpus());
  ASSERT_EQ(alone.status, 0) << alone.err;
  const std::vector<RunResult> shared = Two(sweep("shared"), sweep("shared")).wait();
  ASSERT_EQ(shared[0].status, 0) << shared[0].err;
  ASSERT_EQ(shared[1].status, 0) << shared[1].err;
  EXPECT_TRUE(contains(shared[0].err, "run 1 of 1: n_kv_head 4, seed 1")) << shared[0].err;
  EXPECT_TRUE(contains(shared[0].err, "2 of 2 runs are finished and kept")) << shared[0].err;
  EXPECT_TRUE(contains(shared[0].out, "best val loss")) << shared[0].out;
  EXPECT_EQ(shared[1].out + shared[1].err, "");
  EXPECT_EQ(rows("shared").size(), 2U);
  EXPECT_EQ(rows("shared"), rows("alone"));
}

TEST_F(WorkersOfTheProgram, EndTogetherWhereOneFails) {
  const std::vector<RunResult> results =
      Two(train_on_gpus("run"), train_on_gpus("run", {"--set", "data.corpus=/nowhere.txt"})).wait();
  expect_ended_silently(results[0], 2);
  EXPECT_EQ(results[1].status, 2) << results[1].err;
  EXPECT_TRUE(contains(results[1].err, "headroom: worker 1: /nowhere.txt: can't be read"))
      << results[1].err;
}

/// The first product needs more memory than the second worker's GPU has.
TEST_F(WorkersOfTheProgram, EndTogetherWhereOneFailsAmidAStep) {
  const Arguments command = train_on_gpus("run");
  const std::vector<RunResult> results = Two(command, command, {{"SIMT_MEMORY", "8000000"}}).wait();
  EXPECT_TRUE(contains(results[0].err, "budget     steps 1 to 3")) << results[0].err;
  expect_ended_silently(results[0], 1);
  EXPECT_EQ(results[1].status, 1) << results[1].err;
  EXPECT_TRUE(contains(results[1].err, "headroom: worker 1: [memory] the GPU has no "))
      << results[1].err;
}

/// A profile waits for the GPU after each kernel, and so meets what is wrong there.
TEST_F(WorkersOfTheProgram, EndTogetherWhereOneIsKilledUnderAProfile) {
  const Arguments command = train_on_gpus(
      "run", {"--set", "train.steps=1000", "--profile=" + (work_.folder / "trace.json").string()});
  Two workers(command, command);
  ASSERT_TRUE(workers.first.wait_for_err("step 1/1000 ")) << workers.first.err();
  workers.second.send(SIGKILL);
  const RunResult first = workers.wait()[0];
  EXPECT_EQ(first.status, 1) << first.err;
  EXPECT_TRUE(contains(first.err, "headroom: worker 0: [")) << first.err;
  EXPECT_TRUE(contains(first.err, "worker 1 has ended") || contains(first.err, "rank 1 is gone"))
      << first.err;
}

/// Room for what the workers tell one another (8 KiB), but not for a checkpoint (26 KiB), on the
/// first one only; shells count in 512 or 1024 bytes.
TEST_F(WorkersOfTheProgram, EndTogetherWhereTheDiskOfTheFirstIsFull) {
  const Arguments command = train_on_gpus("run", {"--set", "train.optimizer=adamw"});
  const std::vector<RunResult> results =
      Two(command, command, {}, {"sh", "-c", "ulimit -f 20; exec \"$@\"", "sh"}).wait();
  EXPECT_EQ(results[0].status, 1) << results[0].err;
  EXPECT_TRUE(contains(results[0].err, "step 3: validation loss")) << results[0].err;
  EXPECT_TRUE(contains(results[0].err, "headroom: worker 0: ")) << results[0].err;
  EXPECT_TRUE(contains(results[0].err, "last.safetensors")) << results[0].err;
  expect_ended_silently(results[1], 1);
}

/// Either one stands still for a while: amid the steps, and where the first one, after its last
/// step, evaluates and saves.
TEST_F(WorkersOfTheProgram, WaitForASlowOne) {
  ASSERT_EQ(run_program(train("one")).status, 0);
  struct Stop {
    const char *run, *after, *before;
    Program Two::*slow;
  };
  for (const Stop& stop : {Stop{"amid", "step 1/3 ", "step 3/3 ", &Two::first},
                           {"other", "step 1/3 ", "step 3/3 ", &Two::second},
                           {"end", "step 3/3 ", "step 3: validation loss", &Two::first}}) {
    const std::string run = stop.run;
    Two workers(train_on_gpus(run), train_on_gpus(run));
    ASSERT_TRUE(workers.first.wait_for_err(stop.after)) << workers.first.err();
    Program& slow = workers.*stop.slow;
    slow.send(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    EXPECT_FALSE(contains(workers.first.err(), stop.before)) << workers.first.err();
    slow.send(SIGCONT);
    for (const RunResult& result : workers.wait()) {
      EXPECT_EQ(result.status, 0) << result.err;
    }
    expect_as_one(run);
  }
}

TEST_F(WorkersOfTheProgram, NeedAGpuEach) {
  const Arguments command = train_on_gpus("run");
  const std::vector<RunResult> lacking = Two(command, command, {{"SIMT_DEVICES", "1"}}).wait();
  expect_ended_silently(lacking[0], 2);
  EXPECT_EQ(lacking[1].status, 2);
  EXPECT_TRUE(contains(lacking[1].err,
                       "headroom: worker 1: this is worker 1 of its machine, counted from 0, which "
                       "shows it 1 GPU: each worker needs one of its own"))
      << lacking[1].err;
  expect_told_once(train("run", {"--device", "cuda:1"}),
                   "the device is cuda:1, but each of 2 workers takes the GPU of its own number: "
                   "use --device cuda");
}

/// What all find wrong the first one says, whatever they find it in: they have met before.
TEST_F(WorkersOfTheProgram, TellACommonMistakeOnce) {
  expect_told_once(train_on_gpus("run", {"--set", "train.nonsense=1"}), "train.nonsense");
  expect_told_once(train("run", {"--set", "train.device=cpu"}),
                   "WORLD_SIZE is 2, but workers on processors find one another by MPI");
}

TEST_F(WorkersOfTheProgram, EndTogetherWhereTheConfigOfOneIsWrong) {
  const std::vector<RunResult> results =
      Two(train_on_gpus("run"), train_on_gpus("run", {"--set", "train.nonsense=1"})).wait();
  expect_ended_silently(results[0], 2);
  EXPECT_EQ(results[1].status, 2);
  EXPECT_TRUE(contains(results[1].err, "headroom: worker 1: ")) << results[1].err;
  EXPECT_TRUE(contains(results[1].err, "train.nonsense")) << results[1].err;
}

/// The first one can't make the id by which NCCL's workers find one another.
TEST_F(WorkersOfTheProgram, EndTogetherWhereNcclDoesNotStart) {
  const Arguments command = train_on_gpus("run");
  const std::vector<RunResult> results =
      Two(command, command, {}, {"env", "TMPDIR=/nowhere"}).wait();
  EXPECT_EQ(results[0].status, 1);
  EXPECT_TRUE(contains(results[0].err, "worker 0: [nccl] ncclGetUniqueId of worker 0 failed"))
      << results[0].err;
  expect_ended_silently(results[1], 1);
}

/// A process alone whose shell still has the variables of one among several.
TEST_F(WorkersOfTheProgram, WaitForNobodyOnProcessors) {
  const RunResult result =
      run_program(train("run", {"--device", "cpu"}), on_gpus(torchrun(0, 2, free_port())));
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.err, "workers on processors find one another by MPI")) << result.err;
}

}  // namespace
}  // namespace headroom::testing
