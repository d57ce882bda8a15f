// The checks before the first step, in the order in which they cost least.
#include "train/prepare.h"

#include <limits>

#include "configs/count.h"
#include "configs/load.h"
#include "configs/memory.h"
#include "configs/print.h"
#include "configs/size.h"
#include "kernels/threads.h"
#include "nn/checkpoint.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "train/device.h"
#include "train/precision.h"

namespace headroom::train {

namespace fs = std::filesystem;

namespace {

/// Whether the folder may be used, and the state to go on from if there is one.
std::optional<RunState> starting_state(const configs::Config& config, const TrainOptions& options,
                                       Observer& observer) {
  const fs::path& folder = options.folder;
  check_input(!fs::exists(folder) || fs::is_directory(folder),
              "{}: can't be the run folder: it is not a directory", folder.string());
  if (!holds_run(folder)) {
    if (options.resume) {
      observer.note(fmt::format("{}: nothing to resume; beginning at step 0", folder.string()));
    }
    return std::nullopt;
  }
  if (options.resume) {
    std::optional<RunState> state = read_resume_state(folder, config);
    if (!state) {
      observer.note(fmt::format("{}: nothing was saved; beginning at step 0", folder.string()));
    } else if (const auto before = configs::load_run_config(folder).train.device;
               before != config.train.device) {
      observer.note(fmt::format(
          "train.device was {} so far and is {} from step {} on: sums are "
          "added in another order there",
          configs::name_of(before), configs::name_of(config.train.device), state->step + 1));
    }
    return state;
  }
  std::string stands = "with nothing saved yet";
  if (fs::exists(folder / kLastFile)) {
    const auto state = read_state(SafetensorsFile(folder / kLastFile));
    stands = !state ? "with weights of another program"
             : state->step >= config.train.steps
                 ? fmt::format("that is finished (step {})", state->step)
                 : fmt::format("that stands at step {} of {}", state->step, config.train.steps);
  }
  throw InputError(
      fmt::format("{}: holds a run {}: --resume goes on with it, another --out keeps it",
                  folder.string(), stands));
}

void load_data(const configs::Config& config, kernels::Communicator& workers, Prepared& run,
               RunStart& start, Observer& observer) {
  check_input(!config.data.corpus.empty(), "data.corpus must name the text file to train on");
  const text::Corpus corpus = text::load_corpus(config.data.corpus, config.data.val_fraction);
  std::vector<std::string> notes = corpus.notes;
  check_input(!run.resumed || corpus.hash == run.state.corpus_hash,
              "{}: is not the text this run was trained on", config.data.corpus);
  run.tokenizer = run.resumed ? load_run_tokenizer(run.folder, run.state)
                              : text::make_tokenizer(configs::name_of(config.data.tokenizer),
                                                     config.data.vocab_size,
                                                     corpus.split(text::Split::train), notes);
  text::TokenizedCorpus tokens =
      text::tokenize_splits(corpus, *run.tokenizer, config.model.block_size);
  run.validation = std::move(tokens.val);
  const Share share =
      share_of_step(config.train.batch_size, config.train.grad_accumulation, workers.size());
  run.micros = share.micros;
  run.first_micro = workers.rank() * share.micros;
  run.batches = std::make_unique<Batches>(
      std::move(tokens.train.ids), BatchOptions{.block_size = config.model.block_size,
                                                .batch_size = share.size,
                                                .grad_accumulation = share.micros * workers.size(),
                                                .order = config.data.order,
                                                .seed = static_cast<uint64_t>(config.train.seed)});
  if (config.data.order == configs::Order::sequential && run.batches->leftover() > 0) {
    notes.push_back(fmt::format(
        "a pass is {} sequences of {} tokens; the {} tokens left over at its end are not read",
        run.batches->sequences_per_pass(), config.model.block_size, run.batches->leftover()));
  }
  for (const std::string& note : notes) {
    observer.note(note);
  }
  run.state.corpus_hash = corpus.hash;
  run.state.tokenizer_hash = run.tokenizer->hash();
  run.state.config = settled_config(config);
  start.corpus = corpus.name;
}

void make_model(const configs::Config& config, kernels::Communicator& workers, Prepared& run,
                RunStart& start, Observer& observer) {
  start.vocab_size = model_vocabulary(config.model, *run.tokenizer);
  configs::require_training_memory(config, start.vocab_size,
                                   static_cast<int64_t>(size_of(run.precision.dtype)),
                                   configs::available_memory(start.device));
  const nn::Scope scope{.seed = static_cast<uint64_t>(config.train.seed),
                        .device = start.device,
                        .draw = !run.resumed};
  run.model = std::make_unique<nn::GPT>(config.model, start.vocab_size, scope);
  run.optimizer = std::make_unique<Optimizer>(config.train, run.model->parameters(),
                                              run.precision.dtype, workers);
  if (run.resumed) {
    std::vector<std::string> notes;
    load_checkpoint(run.folder, *run.model, *run.optimizer, notes);
    for (const std::string& note : notes) {
      observer.note(note);
    }
  }
  for (const nn::Parameter& p : run.model->parameters()) {
    run.parameters += p.value.value().numel();
  }
}

/// Makes the folder and writes what belongs to the run but for its checkpoints.
void write_settings(const configs::Config& config, const Prepared& run, int64_t bytes) {
  try {
    std::error_code error;
    fs::create_directories(run.folder, error);
    check(!error, "{}: can't be made: {}", run.folder.string(), error.message());
    const fs::space_info space = fs::space(run.folder, error);
    require_disk(run.folder, bytes, error ? std::numeric_limits<uint64_t>::max() : space.available);
    write_file(run.folder / kConfigFile, configs::to_yaml(config));
    run.tokenizer->save(run.folder / kTokenizerFile);
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("{} (each checkpoint will need {} there)", error.what(),
                            configs::human_bytes(bytes)));
  }
}

/// Workers that train together read the same settings; what else could differ shows in the weights.
void require_same_config(const configs::Config& config, kernels::Communicator& workers) {
  const std::string own = settled_config(config);
  Tensor size = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(own.size())}, {1});
  workers.broadcast(size, 0);
  std::vector<int8_t> bytes(own.begin(), own.end());
  bytes.resize(static_cast<size_t>(size.data<int32_t>()[0]));
  Tensor text = Tensor::from(bytes, {std::ssize(bytes)});
  workers.broadcast(text, 0);
  const std::string first(reinterpret_cast<const char*>(text.data<int8_t>()), bytes.size());
  check_input(
      first == own, "this worker's config differs: {}",
      first_difference(first, "worker 0", config, fmt::format("worker {}", workers.rank()), true));
}

}  // namespace

Prepared prepare(const configs::Config& config, const TrainOptions& options, Observer& observer) {
  kernels::Communicator& workers = *options.workers;
  Prepared run;
  RunStart start;
  start.device = choose_device(options.device, config.train);
  run.folder = options.folder;
  require_same_config(config, workers);
  const std::optional<RunState> state = starting_state(config, options, observer);
  run.resumed = state.has_value();
  run.state = state.value_or(RunState{});
  run.precision =
      choose_precision(config.train.precision, start.device, kernels::has_native_bf16());

  start.folder = run.folder;
  start.steps = config.train.steps;
  if (config.train.threads != 0) {
    kernels::set_threads(static_cast<int>(config.train.threads));
  }
  start.threads = kernels::threads();
  // NCCL documents no order in which it sums.
  start.deterministic = config.train.deterministic && workers.size() == 1;
  load_data(config, workers, run, start, observer);
  make_model(config, workers, run, start, observer);

  start.checkpoint_bytes = checkpoint_bytes(*run.model, *run.optimizer);
  kernels::meet(workers);  // nobody finds in the folder what another one has begun
  const NamedTensors optimizer = run.optimizer->whole_state();
  if (workers.rank() == 0) {
    write_settings(config, run, start.checkpoint_bytes);
    if (run.resumed) {
      repair_best(run.folder, *run.model, optimizer, run.state);
    }
  }
  start.first_step = run.state.step + 1;
  start.parameters = run.parameters;
  start.cache_bytes_per_token = configs::cache_bytes(config.model, 1, 1, configs::KVTypes());
  start.tokens_per_step = run.batches->tokens_per_step();
  start.sequences_per_pass = run.batches->sequences_per_pass();
  start.precision = run.precision.sentence;
  observer.started(start);
  return run;
}

}  // namespace headroom::train
