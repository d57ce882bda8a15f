// What the program says of GPUs, over the harness.
#include <gtest/gtest.h>

#include "configs/print.h"
#include "contains.h"
#include "simt/program.h"
#include "train_run.h"

namespace headroom::testing {
namespace {

TEST(ProgramOnAGpu, NamesItAndWhetherItsRunsRepeat) {
  const Workplace work(600);
  configs::Config config = work.config();
  config.model.n_layer = 1;
  config.train.steps = 0;
  write_file(work.folder / "config.yaml", configs::to_yaml(config));
  for (const bool deterministic : {true, false}) {
    const std::string run = (work.folder / (deterministic ? "one" : "other")).string();
    const RunResult result =
        run_program({"train", (work.folder / "config.yaml").string(), "--out", run, "--device",
                     "cuda", "--set", fmt::format("train.deterministic={}", deterministic)},
                    on_gpus());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(
        contains(result.err, fmt::format("compute    fp32; cuda:0 ({}), with 1 thread,",
                                         deterministic ? "deterministic" : "not deterministic")))
        << result.err;
  }
}

/// What `make experiment` asks, to know whether there is a GPU to train on.
TEST(ProgramOnAGpu, CountsThem) {
  for (const auto& [devices, counted] :
       {std::pair{"0", "cuda (no GPU, "}, {"1", "cuda (1 GPU, "}, {"2", "cuda (2 GPUs, "}}) {
    const RunResult result = run_program({"--version"}, on_gpus({{"SIMT_DEVICES", devices}}));
    EXPECT_TRUE(contains(result.out, counted)) << result.out;
  }
}

/// What is made of a run there is what the CPU makes of it.
TEST(ProgramOnAGpu, EvaluatesGeneratesAndAnalyzesARun) {
  const Workplace work(600);
  configs::Config config = work.config();
  config.model.n_layer = 1;
  config.train.steps = 3;
  write_file(work.folder / "config.yaml", configs::to_yaml(config));
  const std::string run = (work.folder / "run").string();
  ASSERT_EQ(run_program({"train", (work.folder / "config.yaml").string(), "--out", run}).status, 0);
  const auto on_both = [](Arguments command) {
    const RunResult there = [&] {
      Arguments with_device = command;
      with_device.insert(with_device.end(), {"--device", "cuda"});
      return run_program(with_device, on_gpus());
    }();
    const RunResult here = run_program(command);
    EXPECT_EQ(there.status, 0) << there.err;
    EXPECT_EQ(here.status, 0) << here.err;
    return std::pair(there.out, here.out);
  };
  const auto texts = on_both({"generate", run, "--tokens", "12", "--temperature", "0"});
  EXPECT_EQ(texts.first, texts.second);
  const auto losses = on_both({"eval", run, "--json"});
  EXPECT_NEAR(nlohmann::json::parse(losses.first).at("loss_nats").get<double>(),
              nlohmann::json::parse(losses.second).at("loss_nats").get<double>(), 1e-5);
  const auto sinks = on_both({"analyze", "sinks", run});
  EXPECT_TRUE(contains(sinks.first, "share on token 0")) << sinks.first;
}

/// How fast the harness is says nothing; that each benchmark comes to its end does.
TEST(ProgramOnAGpu, TimesAModel) {
  const TemporaryFolder folder;
  const std::string config = (folder / "config.yaml").string();
  write_file(config,
             "model: {n_layer: 1, n_embd: 16, n_head: 2, n_kv_head: 1, block_size: 16, "
             "vocab_size: 20}\ntrain: {batch_size: 2}\n");
  for (const Arguments& bench :
       {Arguments{"train", config, "--steps", "5"},
        {"roofline", config, "--tokens", "8", "--context", "8", "--steps", "5", "--sequences", "1"},
        {"latency", config, "--contexts", "4,8"}}) {
    Arguments command = {"bench"};
    command.insert(command.end(), bench.begin(), bench.end());
    command.insert(command.end(), {"--device", "cuda", "--json"});
    const RunResult result = run_program(command, on_gpus());
    EXPECT_EQ(result.status, 0) << bench[0] << " " << result.err;
    EXPECT_TRUE(nlohmann::json::accept(result.out)) << bench[0] << " " << result.out;
  }
}

/// Before anything is read: the corpus is not there either.
std::string refusal(const std::string& device, const Variables& variables) {
  const RunResult result =
      run_program({"train", "gqa", "--set", "data.corpus=/nowhere.txt", "--device", device},
                  on_gpus(variables));
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  return result.err;
}

TEST(ProgramOnAGpu, SaysWhereThereIsNone) {
  EXPECT_EQ(refusal("cuda", {{"SIMT_DEVICES", "0"}}),
            "headroom: the device is cuda:0, but this machine has no NVIDIA GPU that CUDA can use "
            "(no CUDA-capable device is detected): use --device cpu\n");
}

TEST(ProgramOnAGpu, SaysWhichThereAre) {
  EXPECT_EQ(refusal("cuda:2", {}),
            "headroom: the device is cuda:2, but this machine has cuda:0 to cuda:1\n");
}

}  // namespace
}  // namespace headroom::testing
