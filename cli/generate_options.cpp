// What headroom generate can be told.
#include "cli/generate_options.h"

#include <CLI/App.hpp>
#include <array>
#include <limits>

#include "infer/cache_spec.h"
#include "tensor/check.h"

namespace headroom::cli {

namespace {

constexpr std::array<std::pair<std::string_view, DType>, 3> kWeightTypes = {
    {{"f32", DType::f32}, {"bf16", DType::bf16}, {"int8", DType::i8}}};

DType read_weights(const std::string& text) {
  for (const auto& [name, type] : kWeightTypes) {
    if (name == text) {
      return type;
    }
  }
  throw InputError(fmt::format("--weights is {}, but must be f32, bf16 or int8", text));
}

/// Beams draw nothing, so that `drawing` has no meaning beside them.
void add_beams(CLI::App& app, GenerateArguments& to, const std::vector<CLI::Option*>& drawing) {
  CLI::Option* const beams = add_whole(
      app, "--beams", to.beams, 1, 100000,
      "search: follow the N likeliest continuations and print the best, drawing nothing", "none");
  for (CLI::Option* const option : drawing) {
    beams->excludes(option);
  }
  add_number(
      app, "--length-penalty", to.length_penalty, -10, 10,
      "a continuation's score is its log-probability over its tokens to this power; 0: as it "
      "is")
      ->needs(beams);
  CLI::Option* const draft =
      app.add_option("--draft", to.draft,
                     "a smaller run with the same tokenizer that guesses tokens ahead, for RUN to "
                     "judge: faster, and distributed as without it")
          ->type_name("RUN")
          ->excludes(beams);
  add_whole(app, "--draft-tokens", to.draft_tokens, 1, 1000, "tokens that it guesses at a time")
      ->needs(draft);
}

}  // namespace

std::string_view name_of_weights(DType type) {
  for (const auto& [name, each] : kWeightTypes) {
    if (each == type) {
      return name;
    }
  }
  return name_of(type);
}

void add_generate_options(CLI::App& app, Common& common, GenerateArguments& to) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  app.add_option("RUN", to.run, "a run folder (its best checkpoint) or a checkpoint in one")
      ->required();
  add_repeated(app, "--prompt", to.prompts,
               "text to continue; several make one batch. An empty one, or none, starts from a "
               "newline",
               "TEXT");
  app.add_option("--prompt-file", to.prompt_file, "a file whose whole text is one more prompt")
      ->type_name("FILE");
  add_whole(app, "--tokens", to.tokens, 0, kMost, "new tokens of each text, at most",
            "200, or the room that learned positions leave");
  CLI::Option* const temperature = add_number(
      app, "--temperature", to.temperature, 0, 1e30,
      "divides the logits first; 0: always the likeliest token, the lowest id of equals");
  CLI::Option* const top_k =
      add_whole(app, "--top-k", to.top_k, 0, kMost,
                "then keep the K likeliest, exactly, the lowest ids of equals; 0: all");
  CLI::Option* const top_p =
      add_number(app, "--top-p", to.top_p, 0, 1,
                 "then keep the fewest of the likeliest that reach this probability");
  CLI::Option* const min_p =
      add_number(app, "--min-p", to.min_p, 0, 1,
                 "then keep those at least X times as likely as the likeliest");
  add_whole(app, "--seed", to.seed, 0, std::numeric_limits<int64_t>::max(),
            "of the random numbers; each text has a stream of its own");
  CLI::Option* const samples =
      add_whole(app, "--samples", to.samples, 1, 10000, "texts of each prompt");
  add_repeated(app, "--stop", to.stops, "a text ends before this; may be repeated", "TEXT");
  add_beams(app, to, {temperature, top_k, top_p, min_p, samples});
  app.add_option("--cache", to.cache, std::string(infer::kCacheSpecHelp))
      ->type_name("SPEC")
      ->default_str("static");
  app.add_option("--save-cache", to.save_cache, "write the cache of the one prompt to this file")
      ->type_name("FILE");
  app.add_option("--load-cache", to.load_cache,
                 "take from this file what it has of the prompts' beginnings, instead of computing "
                 "it again")
      ->type_name("FILE");
  app.add_option_function<std::string>(
         "--weights", [&to](const std::string& text) { to.weights = read_weights(text); },
         "f32, bf16 or int8 (one scale for each output): how the matrices are kept, whatever the "
         "precision of the rest")
      ->type_name("NAME")
      ->default_str("f32, or bf16 with --precision bf16");
  app.add_flag("--stats", to.stats, "speed and cache bytes, on stderr or in the JSON");
  add_precision(app, common, "fp32");
  set_footer(app,
             "  headroom generate runs/first --prompt 'ROMEO:' --tokens 100\n"
             "  headroom generate runs/first --prompt A --prompt B --temperature 0 --json\n\n"
             "One text is shown as it comes, prompt first; several are printed in order when all\n"
             "have ended. Greedy texts don't depend on the batch or on --cache unless two logits\n"
             "are as close as float32's rounding. Bytes that are no UTF-8 become U+FFFD.");
}

}  // namespace headroom::cli
