// Progress lines of training runs, for terminals and for files.
#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "configs/count.h"
#include "experiments/table.h"
#include "kernels/threads.h"

namespace headroom::cli {

namespace {
constexpr int64_t kLinesPerRun = 50;
}  // namespace

std::string clock(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t h = whole / 3600, m = whole / 60 % 60, s = whole % 60;
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{}:{:02}", m, s);
}

TrainingProgress::TrainingProgress(const Common& common)
    : common_(common), terminal_(::isatty(STDERR_FILENO) != 0) {}

void TrainingProgress::note(const std::string& sentence) {
  end_live_line();
  cli::note(common_, sentence);
}

void TrainingProgress::started(const train::RunStart& run) {
  if (!first_) {
    return;
  }
  first_ = prefix_.empty();
  line(fmt::format("run        {}", run.folder.string()));
  line(fmt::format("corpus     {}, vocabulary {}, {} sequences a pass", run.corpus, run.vocab_size,
                   run.sequences_per_pass));
  line(fmt::format("model      {} parameters, cache {} per token in f32", run.parameters,
                   configs::human_bytes(run.cache_bytes_per_token)));
  line(fmt::format("compute    {}; {} thread{}, {}, {}", run.precision, run.threads,
                   run.threads == 1 ? "" : "s", kernels::simd_name(), kernels::gemm_name()));
  line(fmt::format("budget     steps {} to {} of {} tokens; a checkpoint is {}", run.first_step,
                   run.steps, run.tokens_per_step, configs::human_bytes(run.checkpoint_bytes)));
}

void TrainingProgress::stepped(const train::Progress& p) {
  const int64_t interval = std::max<int64_t>(1, p.steps / kLinesPerRun);
  if (!terminal_ && p.step % interval != 0 && p.step != 1 && p.step != p.steps) {
    return;
  }
  const std::string text = fmt::format(
      "{}step {}/{}  loss {:.4f}  rate {:.2e}  norm {:.2f}  pass {}  {:.0f} tokens/s  {} left",
      prefix_, p.step, p.steps, p.loss, p.rate, p.gradient_norm, p.pass, p.tokens_per_second,
      clock(p.seconds_left));
  if (terminal_) {
    live(text,
         fmt::format("{}{}/{} {:.2f} {}", prefix_, p.step, p.steps, p.loss, clock(p.seconds_left)));
  } else {
    line(text);
  }
}

void TrainingProgress::evaluated(int64_t step, const train::Evaluation& e, bool best) {
  line(fmt::format("{}step {}: validation loss {:.4f} nats per token, {:.4f} bits per byte{}",
                   prefix_, step, e.loss_nats, e.bits_per_byte, best ? ", the best so far" : ""));
}

void TrainingProgress::run_begins(const experiments::RunPosition& run) {
  prefix_ = fmt::format("{}/{} ", run.index, run.count);
  line(fmt::format("run {} of {}: n_kv_head {}, seed {}", run.index, run.count, run.n_kv_head,
                   run.seed));
}

void TrainingProgress::run_ended(const experiments::Sweep& sweep,
                                 const experiments::Summary& summary, const std::string& warning) {
  if (!warning.empty()) {
    note(warning);
  }
  if (!sweep.finished) {  // the finished table is the result, on stdout
    line(experiments::sweep_table(sweep, summary));
  }
}

void TrainingProgress::line(const std::string& text) {
  end_live_line();
  if (!common_.quiet) {
    write(text + '\n');
  }
}

void TrainingProgress::live(const std::string& text, const std::string& brief) {
  if (common_.quiet) {
    return;
  }
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // The last column stays free: some terminals wrap when it is written to.
  const size_t width = known ? size.ws_col - 1U : 79U;
  write(fmt::format("\r{}\x1b[K", (text.size() <= width ? text : brief).substr(0, width)));
  live_ = true;
}

void TrainingProgress::end_live_line() {
  if (live_) {
    write("\n");
    live_ = false;
  }
}

}  // namespace headroom::cli
