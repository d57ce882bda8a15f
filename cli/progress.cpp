// Progress lines of training runs, for terminals and for files.
#include "cli/progress.h"

#include <fmt/format.h>

#include "configs/count.h"
#include "experiments/table.h"
#include "kernels/threads.h"

namespace headroom::cli {

namespace {

constexpr int64_t kLinesPerRun = 50;

/// A GPU beside the threads, and whether a run on it can be had again bit for bit.
std::string gpu_and(const train::RunStart& run) {
  return run.device == kCpu
             ? ""
             : fmt::format("{} ({}), with ", run.device,
                           run.deterministic ? "deterministic" : "not deterministic");
}

}  // namespace

void TrainingProgress::note(const std::string& sentence) {
  line_.end();
  cli::note(common_, sentence);
}

void TrainingProgress::started(const train::RunStart& run) {
  if (!first_) {
    return;
  }
  first_ = prefix_.empty();
  line_.line(fmt::format("run        {}", run.folder.string()));
  line_.line(fmt::format("corpus     {}, vocabulary {}, {} sequences a pass", run.corpus,
                         run.vocab_size, run.sequences_per_pass));
  line_.line(fmt::format("model      {} parameters, cache {} per token in f32", run.parameters,
                         configs::human_bytes(run.cache_bytes_per_token)));
  line_.line(fmt::format("compute    {}; {}{} thread{}, {}, {}", run.precision, gpu_and(run),
                         run.threads, run.threads == 1 ? "" : "s", kernels::simd_name(),
                         kernels::gemm_name()));
  line_.line(fmt::format("budget     steps {} to {} of {} tokens; a checkpoint is {}",
                         run.first_step, run.steps, run.tokens_per_step,
                         configs::human_bytes(run.checkpoint_bytes)));
}

void TrainingProgress::stepped(const train::Progress& p) {
  const int64_t interval = std::max<int64_t>(1, p.steps / kLinesPerRun);
  if (!line_.terminal() && p.step % interval != 0 && p.step != 1 && p.step != p.steps) {
    return;
  }
  const std::string text = fmt::format(
      "{}step {}/{}  loss {:.4f}  rate {:.2e}  norm {:.2f}  pass {}  {:.0f} tokens/s  {} left",
      prefix_, p.step, p.steps, p.loss, p.rate, p.gradient_norm, p.pass, p.tokens_per_second,
      clock(p.seconds_left));
  if (line_.terminal()) {
    line_.live(text, fmt::format("{}{}/{} {:.2f} {}", prefix_, p.step, p.steps, p.loss,
                                 clock(p.seconds_left)));
  } else {
    line_.line(text);
  }
}

void TrainingProgress::evaluated(int64_t step, const train::Evaluation& e, bool best) {
  line_.line(fmt::format("{}step {}: validation loss {:.4f} nats per token, {:.4f} bits per byte{}",
                         prefix_, step, e.loss_nats, e.bits_per_byte,
                         best ? ", the best so far" : ""));
}

void TrainingProgress::run_begins(const experiments::RunPosition& run) {
  prefix_ = fmt::format("{}/{} ", run.index, run.count);
  line_.line(fmt::format("run {} of {}: {}, seed {}", run.index, run.count, run.title, run.seed));
}

void TrainingProgress::run_ended(const experiments::Sweep& sweep,
                                 const experiments::Summary& summary, const std::string& warning) {
  if (!warning.empty()) {
    note(warning);
  }
  if (!sweep.finished) {  // the finished table is the result, on stdout
    line_.line(experiments::sweep_table(sweep, summary));
  }
}

}  // namespace headroom::cli
