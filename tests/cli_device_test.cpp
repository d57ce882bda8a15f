// Where commands compute: --device and train.device, and what is said where there is no such
// device.
#include <gmock/gmock.h>

#include "cli_random_run.h"
#include "cli_run.h"
#include "configs/load.h"
#include "kernels/backend.h"
#include "sweep_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;

/// No machine has so many GPUs, and a build without CUDA has none.
constexpr const char* kAbsent = "cuda:99";

bool has_gpu() {
  try {
    kernels::backend({Device::Type::cuda, 0});
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// A random run whose config says train.device: cuda, and a corpus of its characters.
struct GpuRun {
  RandomRun run;
  std::string corpus;
  GpuRun() {
    std::string text;
    const RandomStream stream(3, "corpus");
    for (uint64_t i = 0; i < 3000; ++i) {
      text += "abc de.\n"[stream.integer(i, 8)];
    }
    corpus = run.file("corpus.txt", text).string();
    configs::Config config = configs::load_run_config(run.path());
    config.train.device = configs::DeviceKind::cuda;
    write_file(run.path() / train::kConfigFile, configs::to_yaml(config));
  }
  std::string path() const { return run.path().string(); }
};

/// Every command that computes: one sentence and status 2, before anything is read or written.
TEST(Device, AnAbsentOneIsRefusedBeforeAnyWork) {
  const GpuRun gpu;
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string(), run = gpu.path();
  for (Arguments command :
       std::vector<Arguments>{{"train", "gqa", "--out", out},
                              {"sweep", "gqa", "--out", out},
                              {"eval", run},
                              {"generate", run},
                              {"verify-cache", run},
                              {"verify-cache", "gqa"},
                              {"bench", "train", "gqa"},
                              {"bench", "roofline", "gqa"},
                              {"bench", "latency", "gqa"},
                              {"bench", "memory", "gqa"},
                              {"analyze", "sinks", run},
                              {"analyze", "window", run},
                              {"analyze", "low-rank", run},
                              {"convert", run, "--n-kv-head", "1", "--out", out}}) {
    // None of them has this corpus: what asked for the device too late would speak of that.
    command.insert(command.end(), {"--set", "data.corpus=/nonexistent/corpus.txt"});
    command.insert(command.end(), {"--device", kAbsent});
    EXPECT_THAT(headroom_refusal(command), HasSubstr("headroom: the device is cuda:99, but this "));
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(Device, TrainDeviceDecidesWhereNobodyElseDoes) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const GpuRun gpu;
  const TemporaryFolder folder;
  for (const Arguments& command : std::vector<Arguments>{
           {"train", "gqa", "--set", "train.device=cuda", "--out", (folder / "out").string()},
           {"sweep", "gqa", "--set", "train.device=cuda", "--out", (folder / "out").string()},
           {"bench", "latency", "gqa", "--set", "train.device=cuda"},
           {"eval", gpu.path(), "--corpus", gpu.corpus},
           {"generate", gpu.path()}}) {
    EXPECT_THAT(headroom_refusal(command), HasSubstr("the device is cuda:0, but this "));
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(Device, OfTheCommandLineOverridesTrainDevice) {
  const GpuRun gpu;
  const auto on_cpu =
      headroom_json({"eval", gpu.path(), "--corpus", gpu.corpus, "--device", "cpu"});
  const auto by_config =
      headroom_json({"eval", gpu.path(), "--corpus", gpu.corpus, "--set", "train.device=cpu"});
  EXPECT_EQ(on_cpu, by_config);
  EXPECT_EQ(headroom_run({"generate", gpu.path(), "--tokens", "5", "--device", "cpu"}).status, 0);
  EXPECT_EQ(headroom_run({"analyze", "sinks", gpu.path(), "--corpus", gpu.corpus, "--context", "16",
                          "--device", "cpu"})
                .status,
            0);
}

/// What computes nothing needs no device.
TEST(Device, AConfigForAGpuIsReadAnywhere) {
  const GpuRun gpu;
  const auto here = headroom_json({"plan", "gqa", "--precision", "bf16"});
  EXPECT_EQ(headroom_json({"plan", "gqa", "--set", "train.device=cuda"}), here);
  EXPECT_EQ(headroom_json({"plan", "gqa", "--device", kAbsent}), here);
  EXPECT_EQ(headroom_run({"inspect", gpu.path()}).status, 0);
  EXPECT_EQ(headroom_run({"tokenize", gpu.path(), "--text", "abc"}).status, 0);
}

TEST(Device, ATrainedRunRemembersWhereItWasTrained) {
  const Workplace work;
  configs::Config config = work.config();
  config.train.device = configs::DeviceKind::cuda;
  write_file(work.folder / "config.yaml", configs::to_yaml(config));
  const RunResult run = headroom_run({"train", (work.folder / "config.yaml").string(), "--out",
                                      (work.folder / "run").string(), "--device", "cpu"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(read_file(work.folder / "run" / "config.yaml"), HasSubstr("device: cpu"));
}

TEST(Device, OfReproduceIsTheProcessor) {
  EXPECT_THAT(headroom_refusal({"reproduce", "--device", "cuda"}),
              HasSubstr("--device is cuda:0, but reproduce computes on the cpu alone"));
  EXPECT_THAT(headroom_refusal({"reproduce", "--set", "train.device=cuda"}),
              HasSubstr("train.device is cuda, but reproduce computes on the cpu alone"));
}

}  // namespace
}  // namespace headroom::testing
