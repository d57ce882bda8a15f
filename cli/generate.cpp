// headroom generate: text from a run. It turns prompts into tokens, streams what infer chooses, and
// ends each text where its stop text begins.
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/commands.h"
#include "cli/generate_options.h"
#include "configs/memory.h"
#include "configs/size.h"
#include "infer/engine.h"
#include "infer/text_stream.h"
#include "kernels/threads.h"
#include "tensor/file.h"
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

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
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
        loaded_(train::load_run(options.run, common.overrides)) {
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
    set_engine_options();
  }

  int run() {
    std::vector<int64_t> lengths;
    for (const auto& ids : ids_) {
      lengths.push_back(std::ssize(ids));
    }
    const configs::ModelConfig& model = loaded_.config.model;
    const infer::GenerationPlan plan = infer::plan_generation(model, lengths, engine_);
    if (!plan.note.empty()) {
      note(common_, plan.note);
    }
    configs::require_cache_memory(
        model, loaded_.model->vocab_size(), plan.slots, rows(), engine_.cache.types(engine_.dtype),
        engine_.cache.mask.window > 0 ? "--tokens, or window or sinks in --cache" : "--tokens");
    loaded_.model->store_weights(weights_);
    begin();
    const train::InterruptWatch interrupt;
    const infer::Generated result =
        infer::generate(*loaded_.model, ids_, engine_, [&](int64_t row, int32_t token) {
          return take(texts_[static_cast<size_t>(row)], token) && !interrupt.requested();
        });
    finish(result, plan);
    return interrupt.requested() ? train::kInterrupted : 0;
  }

 private:
  int64_t rows() const { return std::ssize(texts_); }
  int64_t weight_bytes() const { return loaded_.model->weight_bytes(engine_.dtype); }
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
    const train::PrecisionChoice precision = train::choose_precision(
        common_.precision.value_or(configs::Precision::fp32), kernels::has_native_bf16());
    engine_ = {.tokens = options_.tokens == GenerateArguments::kNotGiven ? default_tokens()
                                                                         : options_.tokens,
               .sampling = {.temperature = options_.temperature,
                            .top_k = options_.top_k,
                            .top_p = options_.top_p,
                            .min_p = options_.min_p,
                            .seed = static_cast<uint64_t>(options_.seed)},
               .cache = infer::parse_cache_spec(options_.cache),
               .dtype = precision.dtype,
               .vocabulary = loaded_.tokenizer->vocab_size()};
    weights_ = options_.weights.value_or(engine_.dtype);
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

  void begin() {
    for (Text& text : texts_) {
      const std::string shown = text.stream.prompt(prompts_[text.prompt]);
      if (streams()) {
        print(shown);
      }
      prompt_shown_.push_back(shown);
    }
  }

  /// Adds a token to a text; returns whether the text goes on.
  bool take(Text& text, int32_t token) {
    const std::string shown = text.stream.push(loaded_.tokenizer->token_bytes(token));
    text.shown += shown;
    ++text.tokens;
    if (streams() && !shown.empty()) {
      print(shown);
    }
    return !text.stream.stopped();
  }

  void finish(const infer::Generated& result, const infer::GenerationPlan& plan) {
    for (Text& text : texts_) {
      const std::string rest = text.stream.finish();
      text.shown += rest;
      if (streams()) {
        print(rest + '\n');
      }
    }
    if (common_.json) {
      print_json(json(result, plan));
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
      print_stats(result.stats, plan);
    }
  }

  /// On stderr: stdout holds the text.
  void print_stats(const infer::GenerateStats& s, const infer::GenerationPlan& plan) const {
    complain(fmt::format("prefill  {} tokens at {:.1f} tokens/s", s.prefill_tokens,
                         rate(s.prefill_tokens, s.prefill_seconds)));
    complain(fmt::format("decode   {} tokens at {:.1f} tokens/s", s.decode_tokens,
                         rate(s.decode_tokens, s.decode_seconds)));
    complain(fmt::format("weights  {} bytes in {}, read once in a pass", weight_bytes(),
                         name_of_weights(weights_)));
    complain(plan.slots == 0 ? std::string("cache    none: every token recomputes its sequence")
                             : fmt::format("cache    {} bytes held; by the formula {}",
                                           s.cache_bytes_held, plan.cache_formula));
    complain(fmt::format("passes   {} of the model; {} tape nodes", s.passes, s.tape_nodes));
  }

  nlohmann::ordered_json json(const infer::Generated& result,
                              const infer::GenerationPlan& plan) const {
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
    }
    nlohmann::ordered_json out = {{"texts", texts}};
    if (options_.stats) {
      const infer::GenerateStats& s = result.stats;
      out["stats"] = {{"prefill_tokens", s.prefill_tokens},
                      {"prefill_tokens_per_s", rate(s.prefill_tokens, s.prefill_seconds)},
                      {"decode_tokens", s.decode_tokens},
                      {"decode_tokens_per_s", rate(s.decode_tokens, s.decode_seconds)},
                      {"passes", s.passes},
                      {"weights", name_of_weights(weights_)},
                      {"weight_bytes_per_pass", weight_bytes()},
                      {"cache_tokens", plan.slots},
                      {"cache_bytes", s.cache_bytes_held},
                      {"cache_bytes_formula", plan.cache_bytes},
                      {"tape_nodes", s.tape_nodes}};
    }
    return out;
  }

  const GenerateArguments& options_;
  const Common& common_;
  const train::LoadedRun loaded_;
  std::vector<std::string> prompts_, prompt_shown_;
  infer::Sequences ids_;     // one per text
  std::vector<Text> texts_;  // prompt by prompt, its samples together
  infer::GenerateOptions engine_;
  DType weights_ = DType::f32;  // of the matrices
};

}  // namespace

Action add_generate(CLI::App& app, Common& common) {
  auto options = std::make_shared<GenerateArguments>();
  add_generate_options(app, common, *options);
  return [options, &common] { return Generation(*options, common).run(); };
}

}  // namespace headroom::cli
