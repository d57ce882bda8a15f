// headroom generate as a user sees it: prompts of every kind (GEN-01, 02),
// options (GEN-03, 04), whole characters (GEN-06), batches (GEN-08, 09, KVC-08), pipes, disks and
// signals.
#include <chrono>
#include <csignal>
#include <thread>

#include "cli_random_run.h"
#include "text/utf8.h"

namespace headroom::testing {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

TEST(Generate, PrintsThePromptAndWhatFollows) {
  const RandomRun run;
  const std::string text = run.text({"--prompt", "abc", "--tokens", "12"});
  EXPECT_TRUE(text.starts_with("abc"));
  EXPECT_EQ(text.size(), 3U + 12 + 1);
  EXPECT_EQ(text, run.text({"--prompt", "abc", "--tokens", "12"}));
  EXPECT_NE(text, run.text({"--prompt", "abc", "--tokens", "12", "--seed", "2"}));
  EXPECT_EQ(text, run.text({"--prompt", "abc", "--tokens", "12", "--cache", "none"}));
  EXPECT_EQ(run.texts({"--prompt", "abc", "--tokens", "12"})[0].at("text"), text.substr(3, 12));
}

/// GEN-02: every empty form starts the same; blank prompts are prompts; a batch has one entry each.
TEST(Generate, HasOneStartForAllEmptyPrompts) {
  const RandomRun run;
  const Arguments how = {"--tokens", "20", "--temperature", "0"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), how.begin(), how.end());
    return run.texts(more);
  };
  const json nothing = with({});
  EXPECT_EQ(with({"--prompt", ""}), nothing);
  EXPECT_EQ(with({"--prompt-file", run.file("empty", "").string()}), nothing);
  EXPECT_EQ(nothing.size(), 1U);
  EXPECT_EQ(nothing[0].at("prompt"), "");
  // The start is a newline, which isn't shown.
  const json newline = with({"--prompt-file", run.file("newline", "\n").string()});
  EXPECT_EQ(newline[0].at("prompt"), "\n");
  EXPECT_EQ(newline[0].at("text"), nothing[0].at("text"));
  EXPECT_EQ(with({"--prompt", " "})[0].at("prompt"), " ");
  EXPECT_NE(with({"--prompt", " "})[0].at("text"), nothing[0].at("text"));
  const json batch = with({"--prompt", "a", "--prompt", "", "--prompt", "b"});
  ASSERT_EQ(batch.size(), 3U);
  EXPECT_EQ(batch[0].at("prompt"), "a");
  EXPECT_EQ(batch[1].at("text"), nothing[0].at("text"));
  EXPECT_EQ(batch[2].at("prompt"), "b");
}

/// KVC-08, KVC-16, GEN-08: each text of a batch is the text of a process of its own.
TEST(Generate, BatchesEqualSingleRuns) {
  const RandomRun run;
  const Arguments prompts = {"abc de.", "a", "ab ab ab ab ab", "abc"};
  for (const std::string cache : {"static", "none", "static,window=16,sinks=2"}) {
    const Arguments how = {"--tokens", "25", "--temperature", "0", "--stop", "d", "--cache", cache};
    Arguments all = how;
    for (const std::string& prompt : prompts) {
      all.insert(all.end(), {"--prompt", prompt});
    }
    const json batch = run.texts(all);
    for (size_t i = 0; i < prompts.size(); ++i) {
      Arguments one = how;
      one.insert(one.end(), {"--prompt", prompts[i]});
      const json alone = run.texts(one)[0];
      EXPECT_EQ(batch[i].at("text"), alone.at("text"));
      EXPECT_EQ(batch[i].at("tokens"), alone.at("tokens"));
      EXPECT_EQ(batch[i].at("stopped"), alone.at("stopped"));
      EXPECT_EQ(batch[i].at("text").get<std::string>().find('d'), std::string::npos);
      EXPECT_NEAR(batch[i].at("log_prob_nats").get<double>(),
                  alone.at("log_prob_nats").get<double>(), 1e-3);
    }
  }
}

TEST(Generate, SeveralTextsArePrintedInOrder) {
  const RandomRun run;
  const std::string text =
      run.text({"--prompt", "a", "--prompt", "b", "--samples", "2", "--tokens", "4"});
  size_t at = 0;
  for (const std::string heading :
       {"--- prompt 1, sample 1 ---\na", "--- prompt 1, sample 2 ---\na",
        "--- prompt 2, sample 1 ---\nb", "--- prompt 2, sample 2 ---\nb"}) {
    const size_t found = text.find(heading, at);
    ASSERT_NE(found, std::string::npos) << heading << " in\n" << text;
    at = found + 1;
  }
  const json samples = run.texts({"--prompt", "a", "--samples", "3", "--tokens", "30"});
  EXPECT_NE(samples[0].at("text"), samples[1].at("text"));
  EXPECT_NE(samples[1].at("text"), samples[2].at("text"));
}

/// GEN-01: block_size 64.
TEST(Generate, LearnedPositionsRefuseWhatDoesNotFit) {
  const RandomRun run(configs::TokenizerKind::char_level, configs::Position::learned);
  const std::string prompt63(63, 'a'), prompt65(65, 'a');
  EXPECT_EQ(run.text({"--prompt", prompt63, "--tokens", "1"}).size(), 65U);
  EXPECT_EQ(run.text({"--prompt", prompt65, "--tokens", "0"}), prompt65 + "\n");
  EXPECT_EQ(run.text({"--prompt", "abc"}).size(), 65U);  // by default, what there is room for
  for (const std::string cache : {"static", "none"}) {
    const RunResult result =
        run.generate({"--prompt", prompt63, "--tokens", "2", "--cache", cache});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("63 tokens and 2 new ones pass model.block_size 64"),
              std::string::npos)
        << result.err;
  }
  EXPECT_NE(run.generate({"--prompt", prompt65}).err.find("65 tokens and 1 new ones"),
            std::string::npos);
}

TEST(Generate, RopePassesBlockSizeAndSaysSoOnce) {
  const RandomRun run;
  const RunResult result = run.generate({"--prompt", "abc", "--tokens", "100"});
  EXPECT_EQ(result.out.size(), 104U);
  EXPECT_EQ(
      result.err,
      "headroom: 103 tokens pass block_size 64: from there on each token sees the last 64 and "
      "the first 4\n");
  EXPECT_EQ(run.generate({"--prompt", "abc", "--tokens", "100", "--quiet"}).err, "");
  EXPECT_EQ(run.generate({"--prompt", "abc", "--tokens", "61"}).err, "");
}

/// GEN-03 and GEN-04, and everything else that is refused by name, with status 2 and nothing on
/// stdout.
TEST(Generate, RefusesOptionsWithoutMeaning) {
  const RandomRun run;
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--temperature", "-1"}, "--temperature is -1"},
      {{"--temperature", "nan"}, "--temperature is nan"},
      {{"--temperature", "inf"}, "--temperature is inf"},
      {{"--top-k", "-1"}, "--top-k is -1"},
      {{"--top-p", "1.5"}, "--top-p is 1.5"},
      {{"--min-p", "2"}, "--min-p is 2"},
      {{"--tokens", "-5"}, "--tokens is -5"},
      {{"--samples", "0"}, "--samples is 0"},
      {{"--stop", ""}, "--stop is empty"},
      {{"--weights", "int4"}, "--weights is int4, but must be f32, bf16 or int8"},
      {{"--cache", "dynamic"}, "\"dynamic\" is no kind of cache"},
      {{"--cache", "static,dtype=int3"}, "int3"},
      {{"--prompt", "abé"}, "'é' (U+00E9)"},
      {{"--prompt-file", "/nowhere/prompt"}, "/nowhere/prompt"},
      {{"--set", "model.block_size=2000000000", "--tokens", "1999999000"}, "--tokens"},
  };
  for (const auto& [arguments, message] : cases) {
    const RunResult result = run.generate(arguments);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_EQ(result.out, "") << message;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
}

/// A window of 1e9 keys is refused where texts would fill it, and costs nothing where they are
/// short.
TEST(Generate, RefusesACacheThatNoMemoryHolds) {
  const RandomRun run;
  const std::string cache = "static,window=1000000000";
  const RunResult result = run.generate({"--tokens", "2000000000", "--cache", cache});
  EXPECT_EQ(result.status, 2) << result.err;
  for (const char* part : {"cache 238.4 GiB", "are available", "lower --tokens, or window"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << '\n' << result.err;
  }
  EXPECT_EQ(run.text({"--tokens", "5", "--cache", cache}), run.text({"--tokens", "5"}));
}

TEST(Generate, AcceptsExtremeOptions) {
  const RandomRun run;
  const std::string off = run.text({"--prompt", "a", "--tokens", "30", "--seed", "1"});
  const std::string greedy = run.text({"--prompt", "a", "--tokens", "30", "--temperature", "0"});
  const auto with = [&](const std::string& name, const std::string& value) {
    return run.text({"--prompt", "a", "--tokens", "30", "--seed", "1", name, value});
  };
  EXPECT_EQ(with("--top-k", "0"), off);
  EXPECT_EQ(with("--top-k", "100000"), off);
  EXPECT_EQ(with("--top-p", "1"), off);
  EXPECT_EQ(with("--top-k", "1"), greedy);
  EXPECT_EQ(with("--top-p", "0"), greedy);
  EXPECT_EQ(with("--temperature", "1e-40"), greedy);
  EXPECT_EQ(with("--temperature", "1e9").size(), off.size());
  EXPECT_NE(off, greedy);
}

/// GEN-06: random bytes of a byte-level model, whole and cut anywhere.
TEST(Generate, NeverPrintsPartOfACharacter) {
  const RandomRun run(configs::TokenizerKind::byte);
  for (const std::string tokens : {"1", "7", "64", "300"}) {
    const Arguments how = {"--prompt", "\xF0\x9F\x98",  "--tokens", tokens, "--seed",
                           "3",        "--temperature", "5"};
    const std::string text = run.text(how);
    EXPECT_EQ(text::first_invalid_byte(text), text.size());
    // With a second prompt the text isn't streamed, but it is the same.
    Arguments two = how;
    two.insert(two.end(), {"--prompt", "x"});
    EXPECT_NE(run.text(two).find("--- prompt 1 ---\n" + text.substr(0, text.size() - 1)),
              std::string::npos);
  }
}

/// A model may have more rows than its tokenizer has tokens.
TEST(Generate, NeverChoosesARowWithoutText) {
  const RandomRun run(configs::TokenizerKind::char_level, configs::Position::rope, 500);
  EXPECT_EQ(run.text({"--prompt", "a", "--tokens", "60", "--temperature", "9"}).size(), 62U);
}

TEST(Generate, ReportsSpeedAndCacheBytes) {
  const RandomRun run;
  const RunResult result = run.generate({"--prompt", "abc", "--tokens", "20", "--stats", "--json"});
  const json stats = json::parse(result.out).at("stats");
  const int64_t bytes = 2 * 2 * 2 * 8 * 23 * 4;
  EXPECT_EQ(stats.at("cache_bytes"), bytes);
  EXPECT_EQ(stats.at("cache_bytes_formula"), bytes);
  EXPECT_EQ(stats.at("prefill_tokens"), 3);
  EXPECT_EQ(stats.at("decode_tokens"), 19);
  EXPECT_EQ(stats.at("tape_nodes"), 0);
  EXPECT_GT(stats.at("decode_tokens_per_s"), 0);
  const RunResult plain = run.generate({"--prompt", "abc", "--tokens", "20", "--stats"});
  EXPECT_NE(plain.err.find("5888 bytes held"), std::string::npos) << plain.err;
  EXPECT_EQ(plain.out, run.text({"--prompt", "abc", "--tokens", "20"}));
}

TEST(Generate, RunsInBf16) {
  const RandomRun run;
  const RunResult result = run.generate(
      {"--prompt", "abc", "--tokens", "20", "--precision", "bf16", "--stats", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).at("stats").at("cache_bytes"), 2 * 2 * 2 * 8 * 23 * 2);
}

/// The matrices of the run: 2 layers of q 32, k 16, v 16, o 32 by 32 and up 64, down 32 by 64, and
/// a head of 8 by 32.
TEST(Generate, KeepsWeightsAsAsked) {
  const RandomRun run;
  const int64_t elements = 2 * ((32 + 16 + 16 + 32) * 32 + 64 * 32 + 32 * 64) + 8 * 32;
  const int64_t outputs = 2 * (32 + 16 + 16 + 32 + 64 + 32) + 8;
  const Arguments how = {"--prompt", "abc", "--tokens", "40", "--temperature", "0", "--stats"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), how.begin(), how.end());
    more.emplace_back("--json");
    return json::parse(run.text(more));
  };
  const json plain = with({}), f32 = with({"--weights", "f32"});
  EXPECT_EQ(plain.at("texts"), f32.at("texts"));
  EXPECT_EQ(plain.at("stats").at("weights"), "f32");
  EXPECT_EQ(plain.at("stats").at("weight_bytes_per_pass"), elements * 4);
  for (const std::string cache : {"static", "none"}) {
    const json int8 = with({"--weights", "int8", "--cache", cache});
    EXPECT_EQ(int8.at("stats").at("weights"), "int8");
    EXPECT_EQ(int8.at("stats").at("weight_bytes_per_pass"), elements + outputs * 4);
    EXPECT_EQ(int8.at("texts")[0].at("text"),
              with({"--weights", "int8"}).at("texts")[0].at("text"));
    // Near enough to begin alike, and not so near that nothing was done.
    const double float_sum = plain.at("texts")[0].at("log_prob_nats");
    EXPECT_NE(int8.at("texts")[0].at("log_prob_nats").get<double>(), float_sum);
    EXPECT_EQ(int8.at("texts")[0].at("text").get<std::string>().substr(0, 1),
              plain.at("texts")[0].at("text").get<std::string>().substr(0, 1));
  }
  const json bf16 = with({"--precision", "bf16"});
  EXPECT_EQ(bf16.at("stats").at("weights"), "bf16");
  EXPECT_EQ(bf16.at("stats").at("weight_bytes_per_pass"), elements * 2);
  const RunResult printed = run.generate({"--weights", "int8", "--tokens", "2", "--stats"});
  EXPECT_NE(printed.err.find(fmt::format("weights  {} bytes in int8", elements + outputs * 4)),
            std::string::npos)
      << printed.err;
}

/// --stats counts the model's work. 3 tokens and 19 more through 2 layers; FLOP by hand: matrices
/// of 2 layers, keys seen, and the head's row of 8 for each of the 20 tokens chosen.
TEST(Generate, CountsTheWorkDone) {
  const RandomRun run;
  const auto stats_of = [&](const std::string& cache) {
    return json::parse(run.text({"--prompt", "abc", "--tokens", "20", "--cache", cache, "--stats",
                                 "--json"}))
        .at("stats");
  };
  constexpr int64_t kLayers = 2 * 2 * ((32 + 16 + 16 + 32) * 32 + 64 * 32 + 32 * 64);
  constexpr int64_t kKey = 2 * 2 * 2 * 32, kHead = 20 * 2 * 8 * 32;
  const json cached = stats_of("static"), naive = stats_of("none");
  EXPECT_EQ(cached.at("model_rows"), 22);
  EXPECT_EQ(cached.at("logit_rows"), 20);
  EXPECT_EQ(cached.at("logit_rows_used"), 20);
  EXPECT_EQ(cached.at("flop"), 22 * kLayers + 22 * 23 / 2 * kKey + kHead);
  EXPECT_EQ(cached.at("cache_bytes_read"), (22 * 23 / 2 - 1 - 2) * 2 * 2 * 2 * 8 * 4);
  int64_t rows = 0, keys = 0;
  for (int64_t length = 3; length <= 22; ++length) {
    rows += length;
    keys += length * (length + 1) / 2;
  }
  EXPECT_EQ(naive.at("model_rows"), rows);
  EXPECT_EQ(naive.at("flop"), rows * kLayers + keys * kKey + kHead);
  EXPECT_EQ(naive.at("cache_bytes_read"), 0);
}

/// CKP-07: a device that always reports no space.
TEST(Generate, NoticesThatStdoutIsFull) {
  const RandomRun run;
  const RunResult result =
      run.generate({"--prompt", "abc", "--tokens", "20"}, {.output = "/dev/full"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("No space left on device"), std::string::npos) << result.err;
}

TEST(Generate, EndsCleanlyWhenInterrupted) {
  const RandomRun run;
  Program program(run.arguments({"--prompt", "abc", "--tokens", "100000000"}));
  while (program.out().size() < 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  program.send(SIGINT);
  const RunResult result = program.wait();
  EXPECT_EQ(result.status, 130);
  EXPECT_TRUE(result.out.starts_with("abc"));
  EXPECT_TRUE(result.out.ends_with("\n"));
}

}  // namespace
}  // namespace headroom::testing
