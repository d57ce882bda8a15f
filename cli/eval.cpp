// headroom eval: the exact loss of a run on a part of a corpus, in windows or as streams under a
// cache.
#include <CLI/App.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "cli/commands.h"
#include "cli/work_progress.h"
#include "configs/memory.h"
#include "infer/block_table.h"
#include "infer/stream_loss.h"
#include "kernels/threads.h"
#include "train/evaluate.h"
#include "train/precision.h"
#include "train/run_folder.h"

namespace headroom::cli {
namespace {

struct EvalOptions {
  std::string run, corpus, split = "val", cache;
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

/// Under a window a rope model reads the whole split as one stream. Anything else stays within the
/// context it was trained for, where `static` gives the loss without a cache.
int64_t usual_context(const configs::ModelConfig& model, const infer::CacheSpec& spec,
                      int64_t targets) {
  const bool endless = spec.mask.window > 0 && model.position == configs::Position::rope;
  return endless ? targets : std::min(targets, model.block_size);
}

void print_stream(const Common& common, const infer::StreamLoss& loss, int64_t context,
                  int64_t bytes, const std::string& cache, const std::string& what) {
  const double nats = loss.sum_nats / static_cast<double>(loss.tokens);
  const double bits = loss.sum_nats / std::numbers::ln2 / static_cast<double>(bytes);
  if (common.json) {
    print_json({{"loss_nats", nats},
                {"perplexity", std::exp(nats)},
                {"bits_per_byte", bits},
                {"tokens", loss.tokens},
                {"bytes", bytes},
                {"cache", cache},
                {"context", context},
                {"streams", loss.streams},
                {"cache_tokens", loss.cache_slots},
                {"cache_bytes", loss.cache_bytes}});
    return;
  }
  print(
      fmt::format("{}\n"
                  "loss          {:.6f} nats per token\n"
                  "perplexity    {:.4f}\n"
                  "bits per byte {:.6f}\n"
                  "tokens        {} predicted, all but the first ({} bytes)\n"
                  "streams       {} of {} tokens, each from an empty cache\n"
                  "cache         {}: {} bytes held, {} tokens\n",
                  what, nats, std::exp(nats), bits, loss.tokens, bytes, loss.streams, context,
                  cache, loss.cache_bytes, loss.cache_slots));
}

/// The loss of streams under --cache.
void evaluate_stream(const EvalOptions& options, const Common& common,
                     const train::LoadedRun& loaded, const text::Tokens& tokens, DType dtype,
                     const std::string& what) {
  const configs::ModelConfig& model = loaded.config.model;
  const infer::CacheSpec spec = infer::parse_cache_spec(options.cache);
  const int64_t targets = std::ssize(tokens.ids) - 1;
  const int64_t context = options.context > 0 ? std::min(options.context, targets)
                                              : usual_context(model, spec, targets);
  if (!spec.recompute) {
    const infer::BlockTable table(spec.mask, std::max<int64_t>(1, context));
    configs::require_cache_memory(model, loaded.model->vocab_size(), table.slots(), 1,
                                  spec.types(dtype), "--context, or window or sinks in --cache",
                                  configs::available_memory(loaded.model->device()));
  }
  WorkProgress progress(common, "eval, percent");
  int64_t done = 0, percent = 0;
  const infer::StreamLoss loss = infer::stream_loss(
      *loaded.model, tokens.ids, {.cache = spec, .context = context, .dtype = dtype, .chunk = 0},
      [&](int64_t, std::span<const double> nats) {
        done += std::ssize(nats);
        if (done * 100 / targets > percent) {
          percent = done * 100 / targets;
          progress.at(percent, 100);
        }
      });
  const int64_t first = std::ssize(loaded.tokenizer->token_bytes(tokens.ids.front()));
  print_stream(common, loss, context, tokens.bytes - first, infer::to_string(spec), what);
}

int run_eval(const EvalOptions& options, const Common& common) {
  const text::Split split = read_split(options.split);
  check_input(options.cache.empty() || options.stride == 0,
              "--stride {} is for windows that overlap, but --cache {} reads streams one after "
              "another: give one of the two",
              options.stride, options.cache);
  const train::LoadedRun loaded = train::load_run(options.run, common.overrides, common.device);
  for (const std::string& each : loaded.notes) {
    note(common, each);
  }
  use_configured_threads(common, loaded.config.train.threads);
  const train::PrecisionChoice precision =
      train::choose_precision(common.precision.value_or(configs::Precision::fp32),
                              loaded.model->device(), kernels::has_native_bf16());
  const std::string path = options.corpus.empty() ? loaded.config.data.corpus : options.corpus;
  const text::Corpus corpus = text::load_corpus(path, loaded.config.data.val_fraction);
  for (const std::string& each : corpus.notes) {
    note(common, each);
  }
  const text::Tokens tokens = text::tokenize(corpus, split, *loaded.tokenizer);
  const std::string what = fmt::format("{} on {}, {} split, in {}", loaded.checkpoint.string(),
                                       corpus.name, options.split, precision.sentence);
  if (!options.cache.empty()) {
    evaluate_stream(options, common, loaded, tokens, precision.dtype, what);
    return 0;
  }
  const train::Evaluation result = train::evaluate(*loaded.model, tokens, *loaded.tokenizer,
                                                   {.context = options.context,
                                                    .stride = options.stride,
                                                    .batch_size = loaded.config.train.batch_size,
                                                    .dtype = precision.dtype});
  print_result(common, result, what);
  return 0;
}

}  // namespace

Action add_eval(CLI::App& app, Common& common) {
  auto options = std::make_shared<EvalOptions>();
  constexpr int64_t kMost = 1'000'000'000;
  app.add_option("RUN", options->run, "a run folder (its best checkpoint) or a checkpoint in one")
      ->required();
  app.add_option("--corpus", options->corpus, "text to evaluate on")
      ->type_name("FILE")
      ->default_str("the run's data.corpus");
  app.add_option("--split", options->split, "part of the corpus: val, train or all")
      ->type_name("PART")
      ->default_str("val");
  app.add_option("--cache", options->cache,
                 "read streams of --context tokens under this cache instead of windows without "
                 "one: " +
                     std::string(infer::kCacheSpecHelp))
      ->type_name("SPEC");
  add_whole(app, "--context", options->context, 1, kMost, "tokens of a window, or of a stream",
            "model.block_size; for a cache with a window all, as one stream");
  add_whole(app, "--stride", options->stride, 1, kMost,
            "tokens between the starts of two windows; below the context they overlap and a token "
            "counts once, where it first appears",
            "the context");
  add_precision(app, common, "fp32");
  set_footer(app,
             "  headroom eval runs/first\n"
             "  headroom eval runs/first --corpus other.txt --split all --json\n"
             "  headroom eval runs/first --cache static,window=64,sinks=4");
  return [options, &common] { return run_eval(*options, common); };
}

}  // namespace headroom::cli
