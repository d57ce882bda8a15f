// generate by beams, with a draft's guesses and from saved prompts.
#include "cli_random_run.h"

namespace headroom::testing {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

/// GEN-11: beams share their prompt, draw nothing, and give the same with every cache.
TEST(Generate, FollowsBeams) {
  const RandomRun run;
  const std::string prompt(150, 'a');
  const Arguments how = {"--prompt", prompt, "--beams", "3",
                         "--tokens", "20",   "--set",   "model.block_size=400"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), how.begin(), how.end());
    return more;
  };
  const json found = json::parse(run.text(with({"--json", "--stats"})));
  const json& best = found.at("texts")[0];
  EXPECT_NEAR(best.at("score"), best.at("log_prob_nats").get<double>() / 20, 1e-9);
  constexpr int64_t kSlot = 2 * 2 * 2 * 8 * 4;
  const json& stats = found.at("stats");
  EXPECT_EQ(stats.at("cache_bytes_separate"), 3 * 170 * kSlot);
  EXPECT_EQ(stats.at("cache_bytes"), (3 * 170 - 2 * 2 * 64) * kSlot);
  EXPECT_EQ(stats.at("cache_bytes"), stats.at("cache_bytes_formula"));
  EXPECT_LE(stats.at("cache_bytes_in_use"), stats.at("cache_bytes"));
  EXPECT_EQ(run.text(how), prompt + best.at("text").get<std::string>() + "\n");
  EXPECT_EQ(run.texts(with({"--cache", "none"}))[0].at("text"), best.at("text"));
  EXPECT_NE(run.generate(with({"--stats"})).err.find("held for 3 beams that share beginnings"),
            std::string::npos);
  const std::string text = best.at("text");
  const std::string stopped = run.texts(with({"--stop", text.substr(9, 2)}))[0].at("text");
  EXPECT_EQ(stopped.find(text.substr(9, 2)), std::string::npos);
}

TEST(Generate, OneBeamIsGreedy) {
  const RandomRun run;
  EXPECT_EQ(run.text({"--prompt", "abc", "--tokens", "40", "--beams", "1", "--stop", "ed"}),
            run.text({"--prompt", "abc", "--tokens", "40", "--temperature", "0", "--stop", "ed"}));
}

TEST(Generate, LetsADraftGuess) {
  const RandomRun run, other(configs::TokenizerKind::byte);
  const Arguments how = {"--prompt", "abc", "--tokens", "41", "--temperature", "0"};
  Arguments guessing = how;
  guessing.insert(guessing.end(), {"--draft", run.path().string()});
  EXPECT_EQ(run.text(guessing), run.text(how));
  guessing.insert(guessing.end(), {"--stats", "--json"});
  const json draft = json::parse(run.text(guessing)).at("stats").at("draft");
  EXPECT_EQ(draft.at("acceptance"), 1);
  EXPECT_EQ(draft.at("tokens_per_pass"), 5);
  EXPECT_GT(draft.at("speed_up"), 0);
  const RunResult refused = run.generate({"--draft", other.path().string()});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find(other.path().string() + " has another tokenizer"), std::string::npos)
      << refused.err;
}

/// KVC-08: a process goes on from another's prompt.
TEST(Generate, SavesAndLoadsPrompts) {
  const RandomRun run;
  const std::string file = run.file("cache", "").string();
  for (const std::string cache : {"static", "static,dtype=int8", "static,window=16,sinks=2"}) {
    const auto with = [&](Arguments more) {
      more.insert(more.end(), {"--tokens", "25", "--cache", cache});
      return more;
    };
    EXPECT_EQ(run.text(with({"--prompt", "abc de.", "--save-cache", file})),
              run.text(with({"--prompt", "abc de."})));
    for (const std::string prompt : {"abc de.", "abc de.abc", "abc", "e"}) {
      EXPECT_EQ(run.text(with({"--prompt", prompt, "--load-cache", file})),
                run.text(with({"--prompt", prompt})));
    }
  }
  const RunResult result =
      run.generate({"--prompt", "abc de.abc", "--cache", "static,window=16,sinks=2", "--load-cache",
                    file, "--tokens", "3"});
  EXPECT_NE(result.err.find("7 of 10 prompt tokens were taken from it, the other 3 computed"),
            std::string::npos)
      << result.err;
}

/// What can't go together is refused by name.
TEST(Generate, RefusesOptionsThatExcludeEachOther) {
  const RandomRun run;
  const std::string file = run.file("cache", "").string();
  const std::vector<std::pair<Arguments, std::vector<std::string>>> cases = {
      {{"--beams", "2", "--samples", "2"}, {"--beams", "--samples"}},
      {{"--beams", "2", "--temperature", "1"}, {"--beams", "--temperature"}},
      {{"--beams", "2", "--top-k", "4"}, {"--beams", "--top-k"}},
      {{"--beams", "2", "--draft", run.path().string()}, {"--beams", "--draft"}},
      {{"--beams", "0"}, {"--beams is 0"}},
      {{"--length-penalty", "0"}, {"--length-penalty", "--beams"}},
      {{"--draft-tokens", "3"}, {"--draft-tokens", "--draft"}},
      {{"--draft", run.path().string(), "--draft-tokens", "0"}, {"--draft-tokens is 0"}},
      {{"--save-cache", file, "--cache", "none"}, {"--save-cache", "--cache is none"}},
      {{"--load-cache", file, "--cache", "none"}, {"--load-cache", "--cache is none"}},
      {{"--save-cache", file, "--samples", "2"}, {"--save-cache", "2 texts"}},
      {{"--save-cache", file, "--tokens", "0"}, {"--save-cache", "--tokens 0"}},
      {{"--load-cache", file}, {file}},
  };
  for (const auto& [arguments, parts] : cases) {
    const RunResult result = run.generate(arguments);
    EXPECT_EQ(result.status, 2) << parts[0];
    EXPECT_EQ(result.out, "") << parts[0];
    for (const std::string& part : parts) {
      EXPECT_NE(result.err.find(part), std::string::npos) << part << " in " << result.err;
    }
  }
}

}  // namespace
}  // namespace headroom::testing
