// headroom eval: the exact loss of a run on a part of a corpus.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "kernels/threads.h"
#include "train/evaluate.h"
#include "train/precision.h"
#include "train/run_folder.h"

namespace headroom::cli {
namespace {

struct Options {
  std::string run, corpus, split = "val";
  int64_t context = 0, stride = 0;
};

text::Split read_split(const std::string& name) {
  for (const text::Split split : {text::Split::val, text::Split::train, text::Split::all}) {
    if (text::split_name(split) == name) {
      return split;
    }
  }
  throw InputError(fmt::format("--split is {}, but must be val, train or all", name));
}

void print_result(const Common& common, const train::Evaluation& e, const std::string& what) {
  if (common.json) {
    print_json({{"loss_nats", e.loss_nats},
                {"perplexity", e.perplexity},
                {"bits_per_byte", e.bits_per_byte},
                {"tokens", e.tokens},
                {"bytes", e.bytes},
                {"window", e.context},
                {"stride", e.stride}});
    return;
  }
  print(fmt::format(
      "{}\n"
      "loss          {:.6f} nats per token\n"
      "perplexity    {:.4f}\n"
      "bits per byte {:.6f}\n"
      "tokens        {} predicted, all but the first ({} bytes)\n"
      "windows       {} of {} tokens, stride {}{}\n",
      what, e.loss_nats, e.perplexity, e.bits_per_byte, e.tokens, e.bytes, e.windows, e.context,
      e.stride, e.stride == e.context ? "" : " (overlapping: not the published measure)"));
}

int run(const Options& options, const Common& common) {
  const text::Split split = read_split(options.split);
  const train::LoadedRun loaded = train::load_run(options.run, common.overrides);
  for (const std::string& each : loaded.notes) {
    note(common, each);
  }
  use_configured_threads(common, loaded.config.train.threads);
  const train::PrecisionChoice precision = train::choose_precision(
      common.precision.value_or(configs::Precision::fp32), kernels::has_native_bf16());
  const std::string path = options.corpus.empty() ? loaded.config.data.corpus : options.corpus;
  const text::Corpus corpus = text::load_corpus(path, loaded.config.data.val_fraction);
  for (const std::string& each : corpus.notes) {
    note(common, each);
  }
  const text::Tokens tokens = text::tokenize(corpus, split, *loaded.tokenizer);
  const train::Evaluation result = train::evaluate(*loaded.model, tokens, *loaded.tokenizer,
                                                   {.context = options.context,
                                                    .stride = options.stride,
                                                    .batch_size = loaded.config.train.batch_size,
                                                    .dtype = precision.dtype});
  print_result(common, result,
               fmt::format("{} on {}, {} split, in {}", loaded.checkpoint.string(), corpus.name,
                           options.split, precision.sentence));
  return 0;
}

}  // namespace

Action add_eval(CLI::App& app, Common& common) {
  auto options = std::make_shared<Options>();
  constexpr int64_t kMost = 1'000'000'000;
  app.add_option("RUN", options->run, "a run folder (its best checkpoint) or a checkpoint in one")
      ->required();
  app.add_option("--corpus", options->corpus, "text to evaluate on")
      ->type_name("FILE")
      ->default_str("the run's data.corpus");
  app.add_option("--split", options->split, "part of the corpus: val, train or all")
      ->type_name("PART")
      ->default_str("val");
  add_whole(app, "--context", options->context, 1, kMost, "tokens of a window", "model.block_size");
  add_whole(app, "--stride", options->stride, 1, kMost,
            "tokens between the starts of two windows; below the context they overlap and a token "
            "counts once, where it first appears",
            "the context");
  add_precision(app, common, "fp32");
  set_footer(app,
             "  headroom eval runs/first\n"
             "  headroom eval runs/first --corpus other.txt --split all --json");
  return [options, &common] { return run(*options, common); };
}

}  // namespace headroom::cli
