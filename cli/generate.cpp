// headroom generate: text from a run. It turns prompts into tokens, streams what infer chooses, and
// ends each text where its stop text begins.
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/generate_report.h"
#include "cli/work_progress.h"
#include "configs/memory.h"
#include "configs/size.h"
#include "infer/beam.h"
#include "infer/speculate.h"
#include "infer/text_stream.h"
#include "kernels/threads.h"
#include "tensor/file.h"
#include "train/device.h"
#include "train/interrupt.h"
#include "train/precision.h"
#include "train/run_folder.h"

namespace headroom::cli {
namespace {

/// What a text starts from when its prompt is empty: a newline, or the first token of a vocabulary
/// without one.
std::vector<int32_t> start_tokens(const text::Tokenizer& tokenizer) {
  const std::string newline = "\n";
  return tokenizer.encodable_prefix(newline) == newline.size() ? tokenizer.encode(newline)
                                                               : std::vector<int32_t>{0};
}

/// The file's text, read as a corpus is: byte for byte, but for a byte-order mark.
std::string read_prompt_file(const std::string& path, const Common& common) {
  std::string text = read_file(path);
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.erase(0, 3);
    note(common, fmt::format("{}: its byte-order mark is left out", path));
  }
  return text;
}

/// One output: a sample of a prompt.
struct Text {
  size_t prompt = 0;
  int64_t sample = 0;
  infer::TextStream stream;
  std::string shown;  // what came after the prompt
  int64_t tokens = 0;
};

class Generation {
 public:
  Generation(const GenerateArguments& options, const Common& common)
      : options_(options),
        common_(common),
        loaded_(train::load_run(options.run, common.overrides, common.device)) {
    for (const std::string& each : loaded_.notes) {
      note(common, each);
    }
    use_configured_threads(common, loaded_.config.train.threads);
    prompts_ = options.prompts;
    if (!options.prompt_file.empty()) {
      prompts_.push_back(read_prompt_file(options.prompt_file, common));
    }
    if (prompts_.empty()) {
      prompts_.emplace_back();
    }
    for (size_t i = 0; i < prompts_.size(); ++i) {
      for (int64_t sample = 0; sample < options.samples; ++sample) {
        ids_.push_back(encode(i));
        texts_.push_back({i, sample, infer::TextStream(options.stops), "", 0});
      }
    }
    if (!options.draft.empty()) {
      load_draft();
    }
    set_engine_options();
  }

  int run() {
    std::vector<int64_t> lengths;
    for (const auto& ids : ids_) {
      lengths.push_back(std::ssize(ids));
    }
    const configs::ModelConfig& model = loaded_.config.model;
    report_.plan = infer::plan_generation(model, lengths, engine_);
    const infer::GenerationPlan& plan = report_.plan;
    if (!plan.note.empty()) {
      note(common_, plan.note);
    }
    configs::require_cache_memory(model, loaded_.model->vocab_size(), plan.slots, plan.room.batch,
                                  engine_.cache.types(engine_.dtype),
                                  engine_.beams > 1 ? "--tokens or --beams"
                                  : engine_.cache.mask.window > 0
                                      ? "--tokens, or window or sinks in --cache"
                                      : "--tokens",
                                  configs::available_memory(loaded_.model->device()));
    loaded_.model->store_weights(weights_);
    if (draft_) {
      draft_->model->store_weights(weights_);
    }
    use_prompt_caches();
    begin();
    const train::InterruptWatch interrupt;
    const infer::Generated result = generate(interrupt);
    finish(result);
    return interrupt.requested() ? train::kInterrupted : 0;
  }

 private:
  static constexpr double kPatience = 2;  // seconds without a word, where no text streams

  bool searches() const { return options_.beams > 0; }
  /// A text alone is shown as it comes.
  bool streams() const { return texts_.size() == 1 && !common_.json; }

  std::vector<int32_t> encode(size_t prompt) const {
    const std::string& text = prompts_[prompt];
    if (text.empty()) {
      return start_tokens(*loaded_.tokenizer);
    }
    try {
      return loaded_.tokenizer->encode(text);
    } catch (const InputError& e) {
      const bool from_file = prompt >= options_.prompts.size();
      throw InputError(fmt::format("prompt {}{}: {}", prompt + 1,
                                   from_file ? ", " + options_.prompt_file : "", e.what()));
    }
  }

  void set_engine_options() {
    const train::PrecisionChoice precision =
        train::choose_precision(common_.precision.value_or(configs::Precision::fp32),
                                loaded_.model->device(), kernels::has_native_bf16());
    engine_ = {.tokens = options_.tokens == GenerateArguments::kNotGiven ? default_tokens()
                                                                         : options_.tokens,
               .sampling = {.temperature = options_.temperature,
                            .top_k = options_.top_k,
                            .top_p = options_.top_p,
                            .min_p = options_.min_p,
                            .seed = static_cast<uint64_t>(options_.seed)},
               .cache = infer::parse_cache_spec(options_.cache),
               .dtype = precision.dtype,
               .vocabulary = loaded_.tokenizer->vocab_size(),
               .beams = std::max<int64_t>(1, options_.beams),
               .length_penalty = options_.length_penalty,
               .draft_tokens = draft_ ? options_.draft_tokens : 0};
    weights_ = options_.weights.value_or(engine_.dtype);
  }

  /// The draft's run, whose tokens must be the ids of this one.
  void load_draft() {
    draft_.emplace(train::load_run(options_.draft, {}, loaded_.model->device()));
    train::choose_device(loaded_.model->device(), loaded_.config.train);  // its train.tf32 again
    for (const std::string& each : draft_->notes) {
      note(common_, each);
    }
    check_input(draft_->tokenizer->hash() == loaded_.tokenizer->hash(),
                "--draft {} has another tokenizer than {}: its tokens are not the same",
                options_.draft, options_.run);
  }

  /// What nobody asked for must not be refused: learned positions give what room they have.
  int64_t default_tokens() const {
    const configs::ModelConfig& model = loaded_.config.model;
    int64_t room = GenerateArguments::kDefaultTokens;
    for (const auto& ids : ids_) {
      if (model.position == configs::Position::learned) {
        room = std::min<int64_t>(room, model.block_size - std::ssize(ids));
      }
    }
    return std::max<int64_t>(room, 1);  // without any room, a refusal with the numbers
  }

  void use_prompt_caches() {
    if (options_.save_cache.empty() && options_.load_cache.empty()) {
      return;
    }
    const bool saves = !options_.save_cache.empty();
    check_input(!engine_.cache.recompute, "{} needs a cache, and --cache is none",
                saves ? "--save-cache" : "--load-cache");
    check_input(!saves || texts_.size() == 1,
                "--save-cache keeps the cache of one prompt, and there are {} texts",
                texts_.size());
    check_input(!saves || engine_.tokens > 0,
                "--save-cache with --tokens 0: the prompt isn't computed, so nothing can be saved");
    const infer::PromptCacheKey key = infer::prompt_cache_key(
        *loaded_.model, engine_.cache, engine_.dtype, name_of_weights(weights_));
    if (!options_.load_cache.empty()) {
      prompt_cache_.emplace(options_.load_cache, key);
      engine_.prompt_cache = &*prompt_cache_;
    }
    if (saves) {
      engine_.on_prompts = [this, key](infer::BlockCache& cache) {
        infer::save_prompt_cache(options_.save_cache, key, cache, 0, ids_[0]);
      };
    }
  }

  void begin() {
    for (Text& text : texts_) {
      const std::string shown = text.stream.prompt(prompts_[text.prompt]);
      if (streams()) {
        print(shown);
      }
      prompt_shown_.push_back(shown);
    }
  }

  infer::Generated generate(const train::InterruptWatch& interrupt) {
    WorkProgress progress(common_, searches() ? "generate, step" : "generate, token", kPatience);
    int64_t done = 0;
    const auto on_token = [&](int64_t row, int32_t token) {
      if (!streams()) {
        progress.at(++done, engine_.tokens * std::ssize(texts_));
      }
      return take(texts_[static_cast<size_t>(row)], token) && !interrupt.requested();
    };
    if (searches()) {
      infer::Beams found = infer::beam_search(
          *loaded_.model, ids_, engine_,
          [this](int64_t, std::span<const int32_t> tokens) { return ends_in_stop(tokens); },
          [&] {
            progress.at(++done, engine_.tokens);
            return !interrupt.requested();
          });
      for (size_t row = 0; row < texts_.size(); ++row) {
        for (const int32_t token : found.best.tokens[row]) {
          take(texts_[row], token);
        }
      }
      scores_ = std::move(found.scores);
      return std::move(found.best);
    }
    return draft_ ? infer::speculate(*loaded_.model, *draft_->model, ids_, engine_, on_token)
                  : infer::generate(*loaded_.model, ids_, engine_, on_token);
  }

  /// Whether the last token completed a stop text.
  bool ends_in_stop(std::span<const int32_t> tokens) const {
    size_t longest = 0;
    for (const std::string& stop : options_.stops) {
      longest = std::max(longest, stop.size());
    }
    const size_t reach = loaded_.tokenizer->token_bytes(tokens.back()).size() + longest;
    std::string tail;
    for (auto token = tokens.rbegin(); token != tokens.rend() && tail.size() < reach; ++token) {
      tail.insert(0, loaded_.tokenizer->token_bytes(*token));
    }
    return std::any_of(options_.stops.begin(), options_.stops.end(), [&](const std::string& stop) {
      return tail.find(stop) != std::string::npos;
    });
  }

  /// Adds a token to a text; returns whether the text goes on.
  bool take(Text& text, int32_t token) {
    const std::string shown = text.stream.push(loaded_.tokenizer->token_bytes(token));
    text.shown += shown;
    ++text.tokens;
    if (streams() && !searches() && !shown.empty()) {
      print(shown);
    }
    return !text.stream.stopped();
  }

  void finish(const infer::Generated& result) {
    for (Text& text : texts_) {
      const std::string rest = text.stream.finish();
      text.shown += rest;
      if (streams()) {
        print((searches() ? text.shown : rest) + '\n');
      }
    }
    if (prompt_cache_) {
      note(common_,
           fmt::format("{}: {} of {} prompt tokens were taken from it, the other {} computed",
                       options_.load_cache, result.stats.loaded_tokens,
                       result.stats.loaded_tokens + result.stats.prefill_tokens,
                       result.stats.prefill_tokens));
    }
    if (options_.stats) {
      complete_report(result.stats);
    }
    if (common_.json) {
      print_json(json(result));
      return;
    }
    for (size_t row = 0; row < texts_.size() && !streams(); ++row) {
      const Text& text = texts_[row];
      const std::string sample =
          options_.samples > 1 ? fmt::format(", sample {}", text.sample + 1) : "";
      print(fmt::format("--- prompt {}{} ---\n{}{}\n", text.prompt + 1, sample, prompt_shown_[row],
                        text.shown));
    }
    if (options_.stats) {
      for (const std::string& line : stats_lines(report_)) {
        complain(line);  // on stderr: stdout holds the text
      }
    }
  }

  void complete_report(const infer::GenerateStats& stats) {
    report_.stats = stats;
    report_.weights = name_of_weights(weights_);
    report_.weight_bytes = loaded_.model->weight_bytes(engine_.dtype);
    report_.beams = options_.beams;
    if (draft_) {
      time_plain();
    }
  }

  /// Draws some tokens without the draft, to say how much faster it was.
  void time_plain() {
    constexpr int64_t kEnough = 64;
    infer::GenerateOptions plain = engine_;
    plain.draft_tokens = 0;
    plain.prompt_cache = nullptr;
    plain.on_prompts = {};
    plain.tokens = std::min(kEnough, engine_.tokens);
    const infer::GenerateStats stats =
        infer::generate(*loaded_.model, ids_, plain, [](int64_t, int32_t) { return true; }).stats;
    report_.drafted = true;
    report_.plain_tokens = stats.decode_tokens;
    report_.plain_seconds = stats.decode_seconds;
  }

  nlohmann::ordered_json json(const infer::Generated& result) const {
    nlohmann::ordered_json texts = nlohmann::ordered_json::array();
    for (size_t row = 0; row < texts_.size(); ++row) {
      const Text& text = texts_[row];
      const std::vector<double>& log_probs = result.log_probs[row];
      texts.push_back(
          {{"prompt", prompts_[text.prompt]},
           {"sample", text.sample + 1},
           {"text", text.shown},
           {"tokens", text.tokens},
           {"stopped", text.stream.stopped()},
           {"log_prob_nats", std::accumulate(log_probs.begin(), log_probs.end(), 0.0)}});
      if (searches()) {
        texts.back()["score"] = scores_[row];
      }
    }
    nlohmann::ordered_json out = {{"texts", texts}};
    if (options_.stats) {
      out["stats"] = stats_json(report_);
    }
    return out;
  }

  const GenerateArguments& options_;
  const Common& common_;
  const train::LoadedRun loaded_;
  std::optional<train::LoadedRun> draft_;
  std::vector<std::string> prompts_, prompt_shown_;
  infer::Sequences ids_;     // one per text
  std::vector<Text> texts_;  // prompt by prompt, its samples together
  std::optional<infer::PromptCacheFile> prompt_cache_;
  infer::GenerateOptions engine_;
  DType weights_ = DType::f32;  // of the matrices
  std::vector<double> scores_;  // of beams
  GenerateReport report_;
};

}  // namespace

Action add_generate(CLI::App& app, Common& common) {
  auto options = std::make_shared<GenerateArguments>();
  add_generate_options(app, common, *options);
  return [options, &common] { return Generation(*options, common).run(); };
}

}  // namespace headroom::cli
