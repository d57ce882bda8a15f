// headroom train: prints what it is about to do, how it goes and what came of it.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "configs/count.h"
#include "kernels/threads.h"
#include "train/interrupt.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace headroom::cli {
namespace {

constexpr int kInterrupted = 130;  // what a shell says of a program that Ctrl-C ended
constexpr int64_t kLinesPerRun = 50;

/// "1:02:03", "2:03".
std::string clock(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t h = whole / 3600, m = whole / 60 % 60, s = whole % 60;
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{}:{:02}", m, s);
}

/// Progress on stderr: one line that is painted over on a terminal, cut to its width; elsewhere a
/// full line now and then.
class Printer : public train::Observer {
 public:
  explicit Printer(const Common& common)
      : common_(common), terminal_(::isatty(STDERR_FILENO) != 0) {}
  ~Printer() override { end_live_line(); }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void note(const std::string& sentence) override {
    end_live_line();
    cli::note(common_, sentence);
  }

  void started(const train::RunStart& run) override {
    line(fmt::format("run        {}", run.folder.string()));
    line(fmt::format("corpus     {}, vocabulary {}, {} sequences a pass", run.corpus,
                     run.vocab_size, run.sequences_per_pass));
    line(fmt::format("model      {} parameters, cache {} per token in f32", run.parameters,
                     configs::human_bytes(run.cache_bytes_per_token)));
    line(fmt::format("compute    {}; {} threads, {}, {}", run.precision, run.threads,
                     kernels::simd_name(), kernels::gemm_name()));
    line(fmt::format("budget     steps {} to {} of {} tokens; a checkpoint is {}", run.first_step,
                     run.steps, run.tokens_per_step, configs::human_bytes(run.checkpoint_bytes)));
  }

  void stepped(const train::Progress& p) override {
    const int64_t interval = std::max<int64_t>(1, p.steps / kLinesPerRun);
    if (!terminal_ && p.step % interval != 0 && p.step != 1 && p.step != p.steps) {
      return;
    }
    // The most wanted comes first: a narrow terminal cuts the rest.
    const std::string text = fmt::format(
        "{}/{} {:.3f} {} left  {:.0f} tokens/s  rate {:.2e}  norm {:.2f}  pass {}", p.step, p.steps,
        p.loss, clock(p.seconds_left), p.tokens_per_second, p.rate, p.gradient_norm, p.pass);
    if (terminal_) {
      live(text);
    } else {
      line("step " + text);
    }
  }

  void evaluated(int64_t step, const train::Evaluation& e, bool best) override {
    line(fmt::format("step {}: validation loss {:.4f} nats per token, {:.4f} bits per byte{}", step,
                     e.loss_nats, e.bits_per_byte, best ? ", the best so far" : ""));
  }

  bool stop_requested() override { return interrupt_.requested(); }

 private:
  void line(const std::string& text) {
    end_live_line();
    if (!common_.quiet) {
      fmt::print(stderr, "{}\n", text);
      std::fflush(stderr);
    }
  }

  void live(const std::string& text) {
    if (common_.quiet) {
      return;
    }
    winsize size{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    // The last column stays free: some terminals wrap when it is written to.
    const size_t width = known ? size.ws_col - 1U : 79U;
    fmt::print(stderr, "\r{}\x1b[K", text.substr(0, width));
    std::fflush(stderr);
    live_ = true;
  }

  void end_live_line() {
    if (live_) {
      fmt::print(stderr, "\n");
      live_ = false;
    }
  }

  const Common& common_;
  const bool terminal_;
  bool live_ = false;
  train::InterruptWatch interrupt_;
};

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
    Printer printer(common);
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
