// headroom train: prints what it is about to do, how it goes and what came of it.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace headroom::cli {
namespace {

struct Options {
  std::string config, folder;
  bool resume = false;
};

/// runs/NAME of configs/NAME.yaml.
std::filesystem::path default_folder(const ConfigArgument& argument) {
  check_input(argument.run.empty(), "{}: is a run; --out names the folder of the new one",
              argument.run.string());
  return std::filesystem::path("runs") / argument.name;
}

void print_result(const Common& common, const train::TrainResult& result,
                  const std::filesystem::path& folder) {
  if (common.json) {
    print_json({{"run", folder.string()},
                {"step", result.step},
                {"final_loss_nats", result.final_loss},
                {"best_loss_nats", result.best_loss},
                {"best_step", result.best_step},
                {"tokens", result.tokens},
                {"params", result.parameters},
                {"seconds", result.seconds}});
    return;
  }
  print(
      fmt::format("best validation loss  {:.4f} nats per token (step {})\n"
                  "final validation loss {:.4f} nats per token (step {})\n"
                  "trained               {} tokens in {}\n"
                  "run folder            {}\n",
                  result.best_loss, result.best_step, result.final_loss, result.step, result.tokens,
                  clock(result.seconds), folder.string()));
}

int run(const Options& options, const Common& common) {
  const ConfigArgument argument = load_config_argument(options.config, common);
  configs::Config config = argument.config;
  if (common.precision) {
    config.train.precision = *common.precision;
  }
  config.train.threads = common.threads.value_or(config.train.threads);
  use_configured_threads(common, config.train.threads);
  const std::filesystem::path folder =
      options.folder.empty() ? default_folder(argument) : std::filesystem::path(options.folder);
  train::TrainResult result;
  {
    TrainingProgress printer(common);
    result = train::train(config, {.folder = folder, .resume = options.resume}, printer);
  }
  if (result.interrupted) {
    complain(fmt::format("interrupted after step {}, which is saved in {}; --resume goes on",
                         result.step, (folder / train::kLastFile).string()));
    return kInterrupted;
  }
  print_result(common, result, folder);
  return 0;
}

}  // namespace

Action add_train(CLI::App& app, Common& common) {
  auto options = std::make_shared<Options>();
  app.add_option("CONFIG", options->config, "a config file or the name of a preset")->required();
  app.add_option("--out", options->folder, "the run's folder")
      ->type_name("RUN")
      ->default_str("runs/ and the config's name");
  app.add_flag("--resume", options->resume,
               "go on from the last save, bit for bit; begin where nothing was saved");
  add_precision(app, common, "train.precision");
  set_footer(app,
             "  headroom train configs/shakespeare-char-cpu.yaml --out runs/first\n"
             "  headroom train configs/shakespeare-char-cpu.yaml --out runs/first --resume\n\n"
             "Ctrl-C finishes the step and saves it (status 130); a second one ends at once.",
             true);
  return [options, &common] { return run(*options, common); };
}

}  // namespace headroom::cli
