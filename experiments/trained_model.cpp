// Loading a run and cutting both parts of its corpus into passages.
#include "experiments/trained_model.h"

#include <fmt/format.h>

#include "configs/memory.h"
#include "configs/size.h"
#include "experiments/format.h"
#include "experiments/results_file.h"
#include "text/corpus.h"

namespace headroom::experiments {

namespace {

/// Passages to fit directions on, for each one that they are judged on.
constexpr int64_t kTrainingShare = 4;

int64_t checked_context(const configs::ModelConfig& model, int64_t asked) {
  const int64_t context = asked == 0 ? model.block_size : asked;
  check_input(model.position == configs::Position::rope || context <= model.block_size,
              "a context of {} tokens passes model.block_size {}, where learned positions end",
              context, model.block_size);
  return context;
}

}  // namespace

TrainedModel load_trained_model(const std::filesystem::path& run,
                                const TrainedModelOptions& options) {
  TrainedModel trained{.run = train::load_run(run, options.overrides, options.device),
                       .corpus = {},
                       .training = {},
                       .held_out = {},
                       .notes = {}};
  const configs::Config& config = trained.run.config;
  trained.notes = trained.run.notes;
  const int64_t context = checked_context(config.model, options.context);
  configs::require_cache_memory(
      config.model, trained.model().vocab_size(), context, options.passages * kTrainingShare,
      {configs::KVType::f32, configs::KVType::f32}, "--passages or --context",
      configs::available_memory(trained.model().device()));
  const text::Corpus corpus = text::load_corpus(
      options.corpus.empty() ? std::filesystem::path(config.data.corpus) : options.corpus,
      config.data.val_fraction);
  trained.corpus = corpus.name;
  trained.notes.insert(trained.notes.end(), corpus.notes.begin(), corpus.notes.end());
  const auto cut = [&](text::Split split, int64_t count) {
    return cut_passages(text::tokenize(corpus, split, *trained.run.tokenizer).ids, count, context);
  };
  trained.held_out = cut(text::Split::val, options.passages);
  trained.training = cut(text::Split::train, options.passages * kTrainingShare);
  return trained;
}

TrainedModel load_member(const Study& study, const std::string& row, uint64_t seed) {
  return load_trained_model(
      study.sweep / fmt::format("{}-seed{}", row, seed),
      {.overrides = {}, .corpus = {}, .passages = study.quick ? 16 : 64, .device = kCpu});
}

TrainedModel load_reference(const Study& study) {
  const Sweep sweep = read_results(study.sweep);
  const Summary summary = summarize(sweep);
  const Row& row = sweep.rows.at(summary.reference.value_or(0));
  check(!row.runs.empty(), "[study] {}: the sweep's {} has no finished run", study.sweep.string(),
        row.name);
  return load_member(study, row.name, row.runs.front().seed);
}

std::string setting_of(const TrainedModel& trained) {
  const configs::ModelConfig& m = trained.run.config.model;
  return fmt::format(
      "Ours: {} layers, {} wide, {} query heads of {} over {} KV head{}, {} positions, {} "
      "parameters, trained on {} ({}) in sequences of {}; {} passages of {} tokens of its "
      "validation text.",
      m.n_layer, m.n_embd, m.n_head, m.head_dim(), m.n_kv_head, m.n_kv_head == 1 ? "" : "s",
      configs::name_of(m.position),
      format_count(configs::parameter_count(m, trained.model().vocab_size())), trained.corpus,
      trained.run.tokenizer->kind(), m.block_size, trained.held_out.count(),
      trained.held_out.tokens);
}

std::string model_differs(const TrainedModel& trained) {
  const configs::ModelConfig& m = trained.run.config.model;
  return fmt::format(
      "The model differs: published on GPT-2 (124 M parameters, 12 layers of 12 heads, learned "
      "positions, context 1024, trained on web text with 50,257 tokens); ours has {} parameters, "
      "{} layers of {} heads, context {} and {} tokens. Losses of the two can't be compared, only "
      "what the change does to each.",
      format_count(configs::parameter_count(m, trained.model().vocab_size())), m.n_layer, m.n_head,
      m.block_size, trained.model().vocab_size());
}

}  // namespace headroom::experiments
