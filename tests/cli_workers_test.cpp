// Several workers, started by mpirun as a user would: they train what one does, and one that fails
// ends all (DST-01, DST-03).
#include "cli_run.h"
#include "configs/load.h"
#include "configs/print.h"
#include "golden.h"
#include "sweep_run.h"
#include "tensor/safetensors.h"

namespace headroom::testing {
namespace {

bool has_mpi() {
  return run_program({"--version"}).out.find("built without MPI") == std::string::npos;
}

/// Open MPI doesn't pass AddressSanitizer's.
const std::pair<std::string, std::string> kNoLeakCheck = {"ASAN_OPTIONS", "detect_leaks=0"};
/// More workers than cores, as root.
RunOptions mpirun(int64_t workers) {
  return {.launcher = {"mpirun", "-n", std::to_string(workers)},
          .environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                          {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                          {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                          {"OMP_NUM_THREADS", "1"},
                          kNoLeakCheck}};
}

class Workers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpi()) GTEST_SKIP() << "built without MPI";
    configs::Config config = work_.config();
    config.model.dropout = 0.1;
    config.train.grad_accumulation = 2;
    config.train.steps = 50;
    write_file(config_, configs::to_yaml(config));
  }
  Arguments train(const std::string& run, const Arguments& more = {}) const {
    Arguments all = {"train", config_.string(), "--out", (work_.folder / run).string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Losses and gradient norms step by step, validation losses among them, are those of run "one".
  void expect_as_one(const std::string& run) const {
    const auto these = metrics_of(work_.folder / run), those = metrics_of(work_.folder / "one");
    ASSERT_EQ(these.size(), those.size());
    for (size_t i = 0; i < these.size(); ++i) {
      for (const char* key : {"loss", "val_loss", "grad_norm"}) {
        EXPECT_EQ(these[i].contains(key), those[i].contains(key));
        if (those[i].contains(key)) {
          EXPECT_NEAR(these[i][key].get<double>(), those[i][key].get<double>(), 1e-4)
              << run << " " << these[i] << " " << those[i];
        }
      }
    }
  }
  std::string checkpoint(const std::string& run) const {
    return read_file(work_.folder / run / "last.safetensors");
  }

  Workplace work_;
  const std::filesystem::path config_ = work_.folder / "config.yaml";
};

/// One step's eight sequences: in four batches on one worker, in two on two, in one on four.
TEST_F(Workers, TrainWhatOneDoes) {
  const auto train_in = [this](const std::string& run, int64_t batches) {
    return train(run, {"--set", fmt::format("train.batch_size={}", 8 / batches), "--set",
                       fmt::format("train.grad_accumulation={}", batches)});
  };
  ASSERT_EQ(run_program(train_in("one", 4)).status, 0);
  for (const int64_t count : {2, 4}) {
    const std::string run = fmt::format("of{}", count);
    const RunResult result = run_program(train_in(run, 4 / count), mpirun(count));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 5) << result.out;
    expect_as_one(run);
  }
  ASSERT_EQ(run_program(train_in("again", 1), mpirun(4)).status, 0);
  EXPECT_EQ(checkpoint("again"), checkpoint("of4"));
}

/// A sum that is read too early is wrong now and then only (DST-01).
TEST_F(Workers, GiveTheSameBytesTwentyTimes) {
  for (int64_t repeat = 0; repeat < 20; ++repeat) {
    const std::string run = fmt::format("repeat{}", repeat);
    const RunResult result = run_program(train(run, {"--set", "train.steps=10"}), mpirun(2));
    ASSERT_EQ(result.status, 0) << result.err;
    ASSERT_TRUE(checkpoint(run) == checkpoint("repeat0")) << run;
  }
}

TEST_F(Workers, ShardedOptimizersUpdateAsWholeOnes) {
  for (const std::string optimizer : {"muon", "adamw"}) {
    const Arguments whole = {"--set", "train.optimizer=" + optimizer};
    Arguments sharded = whole;
    sharded.insert(sharded.end(), {"--set", "train.shard_optimizer=true"});
    ASSERT_EQ(run_program(train("whole-" + optimizer, whole), mpirun(2)).status, 0);
    ASSERT_EQ(run_program(train("sharded-" + optimizer, sharded), mpirun(2)).status, 0);
    const SafetensorsFile left(work_.folder / ("whole-" + optimizer) / "last.safetensors"),
        right(work_.folder / ("sharded-" + optimizer) / "last.safetensors");
    ASSERT_EQ(left.tensors().size(), right.tensors().size());
    for (const auto& [name, info] : left.tensors()) {
      EXPECT_LE(max_relative_error(right.read(name), left.read(name)), 1e-6) << name;
    }
  }
}

TEST_F(Workers, GoOnWithWhatAnotherNumberBegan) {
  Recorder half;
  half.stop_at = 10;
  const configs::Config config = configs::load_config(config_);
  work_.train(config, "begun", half);
  Arguments resumed = train("begun", {"--resume", "--set", "train.shard_optimizer=true"});
  const RunResult result = run_program(resumed, mpirun(2));
  ASSERT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(run_program(train("one")).status, 0);
  expect_as_one("begun");
}

TEST_F(Workers, MustDivideAStepsSequences) {
  const RunResult result = run_program(train("run"), mpirun(3));
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(
      result.err.starts_with("headroom: worker 0: train.batch_size 4 * "
                             "train.grad_accumulation 2 = 8 sequences a step, which "
                             "don't divide among 3 workers\n"))
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(work_.folder / "run"));
}

/// Worker 0 trains; worker 1 is given something else, `launcher` included.
RunResult with_another(const Arguments& first, const Arguments& second,
                       const RunOptions& options = mpirun(1), const Arguments& launcher = {}) {
  Arguments words = first;
  words.insert(words.end(), {":", "-n", "1"});
  words.insert(words.end(), launcher.begin(), launcher.end());
  words.emplace_back(HEADROOM_PROGRAM);
  words.insert(words.end(), second.begin(), second.end());
  return run_program(words, options);
}

TEST_F(Workers, OneThatFailsEndsAllWithItsOwnMessageFirst) {
  const RunResult missing =
      with_another(train("a"), train("a", {"--set", "data.corpus=/nowhere.txt"}));
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("headroom: worker 1: /nowhere.txt: can't be read"), std::string::npos)
      << missing.err;
  EXPECT_LT(missing.err.find("worker 1: "), missing.err.find("MPI_ABORT"));

  const RunResult other = with_another(train("b"), train("b", {"--set", "train.seed=7"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(
      other.err.find("worker 1: this worker's config differs: train.seed is 1 in worker 0 and "
                     "7 in worker 1"),
      std::string::npos)
      << other.err;
}

/// A processor with other instructions rounds Muon's products otherwise, and its weights with them.
TEST_F(Workers, OneThatFailsAmidTrainingEndsAll) {
  const RunResult result =
      with_another(train("run"), train("run"), mpirun(1), {"env", "DNNL_MAX_CPU_ISA=SSE41"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.err.find("step 1/50") < result.err.find("headroom: worker 1: [train] "))
      << result.err;
  EXPECT_NE(result.err.find(" of worker 1 is not that of worker 0 after step 5\n"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("worker 0: "), std::string::npos) << result.err;
  EXPECT_LT(result.err.find("worker 1: "), result.err.find("MPI_ABORT"));
}

/// Two workers of one command, the first of which is started by a shell's script ("$@" is it).
RunResult with_first_in(const std::string& script, const Arguments& command) {
  RunOptions options = mpirun(1);
  options.launcher.insert(options.launcher.end(), {"sh", "-c", script, "sh"});
  return with_another(command, command, options);
}

TEST_F(Workers, AFullDiskOnTheOneThatWritesEndsAll) {
  const RunResult result =
      with_first_in("ulimit -f 16; exec \"$@\"", train("run", {"--set", "train.save_every=1"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("headroom: worker 0: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("last.safetensors"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("worker 1: "), std::string::npos) << result.err;
}

/// The first worker stands still for a while, as one does that evaluates or saves; the other one
/// waits in the midst of a step.
TEST_F(Workers, WaitForASlowOne) {
  ASSERT_EQ(run_program(train("one")).status, 0);
  const RunResult result = with_first_in(
      "(for i in 1 2; do sleep 0.4; kill -STOP $$ || exit; sleep 1; kill -CONT $$; done) "
      ">&- 2>&- & exec \"$@\"",
      train("slow"));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_as_one("slow");
}

/// Nothing is left waiting for a worker that was killed, as one is that takes too much memory.
TEST_F(Workers, OneThatIsKilledEndsAll) {
  const RunResult result = with_first_in("(sleep 1; kill -KILL $$) >&- 2>&- & exec \"$@\"",
                                         train("killed", {"--set", "train.steps=1000000"}));
  EXPECT_NE(result.status, 0);
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.err.find("signal 9"), std::string::npos) << result.err;
}

TEST_F(Workers, ShareTheRunsOfASweep) {
  const std::filesystem::path sweep = work_.folder / "sweep.yaml";
  write_file(sweep, configs::to_yaml(small_sweep(work_.corpus)));
  const auto results = [&](const std::string& folder, const RunOptions& options) {
    const RunResult run =
        run_program({"sweep", sweep.string(), "--out", (work_.folder / folder).string()}, options);
    EXPECT_EQ(run.status, 0) << run.err;
    std::vector<std::vector<double>> losses;
    const nlohmann::json written = results_of(work_.folder / folder);
    for (const nlohmann::json& row : written.at("rows")) {
      losses.push_back(row.at("val_loss").at("values"));
    }
    return losses;
  };
  const auto alone = results("alone", {});
  EXPECT_EQ(alone.size(), 2U);
  EXPECT_EQ(results("shared", mpirun(2)), alone);
}

TEST_F(Workers, OtherCommandsAreForOne) {
  const RunResult result = run_program({"plan", "gqa"}, mpirun(2));
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(
      result.err.starts_with("headroom: worker 0: headroom plan is the work of one process, "
                             "and mpirun started 2"))
      << result.err;
}

/// An MPI that doesn't speak srun's protocol would have each process train alone, in one folder.
TEST_F(Workers, ThatDoNotFindOneAnotherAreRefused) {
  for (const std::string variable : {"PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const RunResult result =
        run_program(train("lost"), {.environment = {{variable, "3"}, kNoLeakCheck}});
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("3 processes were started together, but "), std::string::npos)
        << result.err;
    EXPECT_FALSE(std::filesystem::exists(work_.folder / "lost"));
  }
}

TEST(WorldSize, WithoutALauncherIsRefused) {
  const std::string message =
      headroom_refusal({"train", "gqa"}, {.environment = {{"WORLD_SIZE", "4"}}});
  EXPECT_NE(message.find("WORLD_SIZE is 4, but workers on processors find one another by MPI: "
                         "start them by mpirun -n 4 headroom ..."),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace headroom::testing
