// What a config file and --set may say, and what the refusals tell.
#include "configs/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "configs/print.h"
#include "configs/rules.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

using testing::HasSubstr;

/// The message with which `run` refuses its input, or "" when it doesn't.
std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

std::string refusal(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return refusal([&] { parse_config(yaml, "t.yaml", overrides); });
}

Config parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "t.yaml", overrides);
}

TEST(Load, KeysThatAreAbsentKeepTheDefaultsOfTheDesign) {
  const Config c = parse("model: {}\n");
  EXPECT_EQ(c.model.n_layer, 6);
  EXPECT_EQ(c.model.n_head, 8);
  EXPECT_EQ(c.model.n_kv_head, 2);
  EXPECT_EQ(c.model.n_embd, 256);
  EXPECT_EQ(c.model.head_dim(), 32);
  EXPECT_EQ(c.model.n_ff(), 1024);
  EXPECT_EQ(c.model.norm_eps, 1e-6);
  EXPECT_EQ(c.data.corpus, "");
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.train.optimizer, OptimizerKind::muon);
  EXPECT_EQ(c.train.schedule, Schedule::wsd);
  EXPECT_EQ(c.train.precision, Precision::automatic);
  EXPECT_EQ(c.sweep.n_kv_head, (std::vector<int64_t>{8, 4, 2, 1}));
  EXPECT_EQ(c.sweep.fair, Fairness::same_shape);
}

TEST(Load, EveryTypeOfValueIsRead) {
  const Config c = parse(
      "model:\n  n_head: 4\n  mlp: swiglu\n  qk_norm: true\n  dropout: .25\n  rope_base: 5e5\n"
      "data:\n  corpus: 'my text.txt'\n"
      "sweep: {seeds: [0, 7], fair: same-cache}\n");
  EXPECT_EQ(c.model.n_head, 4);
  EXPECT_EQ(c.model.mlp, MlpKind::swiglu);
  EXPECT_TRUE(c.model.qk_norm);
  EXPECT_EQ(c.model.dropout, 0.25);
  EXPECT_EQ(c.model.rope_base, 500000);
  EXPECT_EQ(c.data.corpus, "my text.txt");
  EXPECT_EQ(c.sweep.seeds, (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(c.sweep.fair, Fairness::same_cache);
}

TEST(Load, DerivedWidthsFollowTheModel) {
  EXPECT_EQ(parse("model: {n_embd: 512, n_ff: 0}").model.n_ff(), 2048);
  // 8/3 * 256 = 682.7, and the next multiple of 64 is 704.
  EXPECT_EQ(parse("model: {mlp: swiglu, n_ff: 0}").model.n_ff(), 704);
  EXPECT_EQ(parse("model: {mlp: swiglu, n_ff: 0, n_embd: 192}").model.n_ff(), 512);
  const ModelConfig m = parse("model: {head_dim: 48}").model;
  EXPECT_EQ(m.q_dim(), 8 * 48);
  EXPECT_EQ(m.kv_dim(), 2 * 48);
  EXPECT_EQ(m.group(), 4);
}

// CFG-01
TEST(Load, HeadCountsThatDoNotDivideAreRefusedWithBothNumbers) {
  for (const auto& [n_head, n_kv_head] : std::vector<std::pair<std::string, std::string>>{
           {"6", "4"}, {"4", "8"}, {"4", "0"}, {"4", "-1"}, {"8", "3"}}) {
    const std::string message =
        refusal("model:\n  n_embd: 96\n  n_head: " + n_head + "\n  n_kv_head: " + n_kv_head + "\n");
    EXPECT_THAT(message, HasSubstr("t.yaml:4: "));
    EXPECT_THAT(message, HasSubstr("n_head is " + n_head + " and"));
    EXPECT_THAT(message, HasSubstr("n_kv_head is " + n_kv_head + ","));
    EXPECT_THAT(message, HasSubstr("must be a multiple"));
  }
  const std::string width = refusal("model:\n  n_embd: 100\n  n_head: 8\n");
  EXPECT_THAT(width, HasSubstr("t.yaml:2: model.n_embd is 100 and model.n_head is 8"));
  for (const char* n_kv_head : {"8", "4", "2", "1"}) {
    EXPECT_EQ(refusal(std::string("model: {n_kv_head: ") + n_kv_head + "}"), "");
  }
  // The same rules guard a config that never was a file, as one read out of a checkpoint is.
  ModelConfig model;
  model.n_kv_head = 3;
  EXPECT_THAT(refusal([&] { check_model(model); }), HasSubstr("n_kv_head is 3"));
}

TEST(Load, RulesBetweenKeysAreChecked) {
  EXPECT_THAT(refusal("model: {n_embd: 264}"), HasSubstr("head_dim is 33 (n_embd 264 / n_head 8)"));
  EXPECT_EQ(refusal("model: {n_embd: 264, position: learned}"), "");
  EXPECT_EQ(refusal("model: {n_embd: 100, head_dim: 32}"), "");
  EXPECT_THAT(refusal("model: {bias: norm}"), HasSubstr("RMSNorm has no bias"));
  EXPECT_EQ(refusal("model: {bias: norm, norm: layernorm}"), "");
  EXPECT_THAT(refusal("data: {tokenizer: bpe}"), HasSubstr("at least 257"));
  EXPECT_THAT(refusal("data: {vocab_size: 300}"), HasSubstr("0 unless it is bpe"));
  EXPECT_THAT(refusal("train: {device: gpu}"), HasSubstr("must be cpu or cuda"));
  EXPECT_THAT(refusal("sweep: {seeds: [1, 1]}"), HasSubstr("different"));
  EXPECT_THAT(refusal("sweep: {seeds: []}"), HasSubstr("sweep.seeds is []"));
}

TEST(Load, LatentAttentionDerivesItsWidthsAndRefusesWhatItHasNot) {
  const ModelConfig m = parse("model: {attention: mla, n_kv_head: 8, head_dim: 20}").model;
  EXPECT_EQ(m.kv_rank(), 40);
  EXPECT_EQ(m.rope_head_dim(), 10);
  // Rope rotates pairs: half of 18 is rounded up. The width of a head may be odd, it is not
  // rotated.
  EXPECT_EQ(parse("model: {attention: mla, n_kv_head: 8, head_dim: 18}").model.rope_head_dim(), 10);
  EXPECT_EQ(parse("model: {attention: mla, n_kv_head: 8, head_dim: 15}").model.rope_head_dim(), 8);
  EXPECT_EQ(
      parse("model: {attention: mla, n_kv_head: 8, kv_rank: 7, rope_head_dim: 4}").model.kv_rank(),
      7);
  EXPECT_EQ(parse("model: {attention: mla, n_kv_head: 8, position: learned}").model.rope_head_dim(),
            0);

  EXPECT_EQ(refusal("model:\n  attention: mla\n  n_kv_head: 2\n"),
            "t.yaml:3: model.n_kv_head is 2 and model.attention is mla, whose latent serves every "
            "head: n_kv_head must be n_head, 8");
  EXPECT_THAT(refusal("model: {kv_rank: 4}"), HasSubstr("model.kv_rank is 4 and model.attention"));
  EXPECT_THAT(refusal("model: {rope_head_dim: 4}"), HasSubstr("model.rope_head_dim is 4 and"));
  EXPECT_THAT(refusal("model: {attention: mla, n_kv_head: 8, rope_head_dim: 5}"),
              HasSubstr("model.rope_head_dim is 5, but rope rotates pairs"));
  EXPECT_THAT(refusal("model: {attention: mla, n_kv_head: 8, position: learned, rope_head_dim: 4}"),
              HasSubstr("model.position is learned, which rotates nothing"));
}

TEST(Load, RowsOfASweepBesideItsHeadsMustDifferFromThem) {
  EXPECT_EQ(refusal("sweep: {also: [mla, window, learned-sink]}"), "");
  EXPECT_EQ(refusal("model: {kv_rank: 40}\nsweep: {also: [mla]}"), "");
  EXPECT_THAT(refusal("model: {kv_rank: 40}\nsweep: {also: [window]}"), HasSubstr("has no latent"));
  EXPECT_THAT(refusal("model: {window: 8}\nsweep: {also: [window]}"),
              HasSubstr("by model.window every model of the sweep has it"));
  EXPECT_THAT(refusal("model: {sink: learned}\nsweep: {also: [learned-sink]}"),
              HasSubstr("by model.sink every model of the sweep has it"));
  EXPECT_THAT(refusal("sweep: {also: [mla], fair: same-cache}"),
              HasSubstr("use same-shape or same-params"));
}

TEST(Load, WindowsPatternsAndSinksMustBelongTogether) {
  EXPECT_EQ(refusal("model: {window: 8, window_pattern: LLG, sinks: 2, sink: learned}"), "");
  EXPECT_EQ(refusal("model: {sink: learned}"), "");
  for (const char* pattern : {"G", "''", "LX", "lg"}) {
    EXPECT_THAT(refusal(std::string("model: {window: 8, window_pattern: ") + pattern + "}"),
                HasSubstr("must be the letters L"));
  }
  EXPECT_THAT(refusal("model: {window_pattern: LG}"), HasSubstr("no layer has a window"));
  EXPECT_THAT(refusal("model: {sinks: 4}"), HasSubstr("model.sinks is 4 and model.window is 0"));
}

// CFG-02
TEST(Load, UnknownKeysAreRefusedWithLineAndNearestKey) {
  EXPECT_EQ(refusal("model:\n  n_head: 4\ntrain:\n  learning_rat: 1e-3\n"),
            "t.yaml:4: train.learning_rat is no key: did you mean train.lr?");
  EXPECT_THAT(refusal("train:\n  warmup-steps: 3"), HasSubstr("did you mean train.warmup_steps?"));
  EXPECT_THAT(refusal("model: {hidden_size: 3}"), HasSubstr("did you mean model.n_embd?"));
  for (const char* value : {"[1, 2]", "{}", "{a: 1}", "", "~", "'text'", "1"}) {
    EXPECT_THAT(refusal(std::string("model:\n  n_layer: 2\n  colour: ") + value + "\n"),
                HasSubstr("t.yaml:3: model.colour is no key: model has n_layer, n_head"));
  }
  EXPECT_THAT(refusal("modle: {}"), HasSubstr("did you mean model?"));
  EXPECT_THAT(refusal("[a]: 1"), HasSubstr("a key is a list"));
}

// CFG-02
TEST(Load, MisplacedKeysAreRefusedWithTheirSection) {
  EXPECT_EQ(refusal("train:\n  n_kv_head: 4\n"),
            "t.yaml:2: train.n_kv_head is no key: it belongs to section model or sweep");
  EXPECT_THAT(refusal("model:\n  corpus: x\n"), HasSubstr("it belongs to section data"));
  EXPECT_THAT(refusal("n_layer: 4\n"),
              HasSubstr("t.yaml:1: n_layer is no section: it belongs to section model"));
}

TEST(Load, RepeatedKeysAndSectionsAreRefused) {
  EXPECT_THAT(refusal("model:\n  n_layer: 4\n  n_layer: 4\n"),
              HasSubstr("t.yaml:3: model.n_layer is repeated: it was given at t.yaml:2 too"));
  EXPECT_THAT(refusal("model: {}\ntrain: {}\nmodel: {}\n"),
              HasSubstr("t.yaml:3: model is repeated"));
  EXPECT_THAT(refusal("model: {}\n---\nmodel: {}\n"), HasSubstr("2 YAML documents"));
}

struct BadValue {
  const char* section;
  const char* key;
  const char* value;
  const char* shown;
  const char* allowed;
};

class BadValues : public testing::TestWithParam<BadValue> {};

// CFG-04
TEST_P(BadValues, AreRefusedWithKeyValueAndRange) {
  const BadValue& bad = GetParam();
  const std::string message =
      refusal(std::string(bad.section) + ":\n  " + bad.key + ": " + bad.value + "\n");
  EXPECT_THAT(message, HasSubstr("t.yaml:2: " + std::string(bad.section) + "." + bad.key + " is " +
                                 bad.shown));
  EXPECT_THAT(message, HasSubstr(bad.allowed));
  // --set takes the same way.
  const std::string assignment = std::string(bad.section) + "." + bad.key + "=" + bad.value;
  const std::string set = refusal("model: {}", {assignment});
  EXPECT_THAT(set, HasSubstr("--set " + assignment + ": "));
  EXPECT_THAT(set, HasSubstr(bad.allowed));
}

INSTANTIATE_TEST_SUITE_P(
    Load, BadValues,
    testing::Values(BadValue{"train", "batch_size", "0", "0,", "from 1 to 1000000"},
                    BadValue{"train", "batch_size", "-4", "-4,", "from 1 to 1000000"},
                    BadValue{"model", "block_size", "0", "0,", "from 1 to 2147483647"},
                    BadValue{"model", "n_layer", "-1", "-1,", "from 1 to 2147483647"},
                    BadValue{"train", "steps", "-1", "-1,", "from 0 to"},
                    BadValue{"model", "dropout", "1.5", "1.5,", "from 0 to 0.99"},
                    BadValue{"train", "lr", ".nan", ".nan,", "a number from 0 to 1000000"},
                    BadValue{"train", "lr", "nan", "nan,", "a number from 0 to 1000000"},
                    BadValue{"train", "lr", "inf", "inf,", "a number from 0 to 1000000"},
                    BadValue{"train", "lr", "1e-3x", "1e-3x,", "a number from 0 to 1000000"},
                    BadValue{"model", "n_head", "4.5", "4.5,", "a whole number"},
                    BadValue{"model", "n_head", "\"four\"", "\"four\",", "a whole number"},
                    BadValue{"model", "n_head", "'4'", "\"4\",", "a whole number"},
                    BadValue{"model", "n_head", "[4]", "a list,", "a whole number"},
                    BadValue{"model", "n_head", "{a: 4}", "a map,", "a whole number"},
                    BadValue{"model", "n_head", "", "empty,", "a whole number"},
                    BadValue{"model", "n_head", "18446744073709551617", "18446744073709551617,",
                             "a whole number"},
                    BadValue{"model", "qk_norm", "yes", "yes,", "true or false"},
                    BadValue{"model", "mlp", "relu", "relu,", "gelu, gelu_erf, swiglu or relu2"},
                    BadValue{"data", "corpus", "[a]", "a list,", "text"},
                    BadValue{"sweep", "seeds", "[1, x]", "a list,", "different whole numbers"},
                    BadValue{"sweep", "seeds", "3", "3,", "different whole numbers"},
                    BadValue{"train", "seed", "-1", "-1,", "from 0 to"}));

// CFG-04: values with a meaning of their own stay what they are.
TEST(Load, ZeroIsKeptWhereItMeansSomething) {
  const Config c = parse(
      "train: {steps: 0, warmup_steps: 0, eval_every: 0, save_every: 0, clip_norm: 0, seed: 0}");
  EXPECT_EQ(c.train.steps, 0);
  EXPECT_EQ(c.train.eval_every, 0);
  EXPECT_EQ(c.train.clip_norm, 0);
  EXPECT_EQ(c.train.seed, 0);
}

TEST(Load, OverridesWinInOrderAndNameThemselves) {
  const Config c = parse("train: {lr: 1}", {"train.lr=2", "sweep.seeds=[4, 5]", "train.lr=3.5"});
  EXPECT_EQ(c.train.lr, 3.5);
  EXPECT_EQ(c.sweep.seeds, (std::vector<int64_t>{4, 5}));
  EXPECT_THAT(refusal("model: {}", {"train.lr"}),
              HasSubstr("--set train.lr: must be section.key=value"));
  EXPECT_THAT(refusal("model: {}", {"n_head=4"}), HasSubstr("it belongs to section model"));
  EXPECT_THAT(refusal("model: {}", {"trian.lr=4"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(refusal("model: {}", {"model.n_kv_head=3"}),
              HasSubstr("--set model.n_kv_head=3: model.n_head is 8"));
  EXPECT_THAT(refusal("model: {}", {"model.n_head=["}), HasSubstr("not valid YAML"));
}

// TRN-01
TEST(Load, WarmUpBeyondTheStepsIsClippedWithANote) {
  std::vector<std::string> notes;
  const Config c =
      parse_config("train:\n  steps: 100\n  warmup_steps: 200\n", "t.yaml", {}, &notes);
  EXPECT_EQ(c.train.warmup_steps, 100);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0],
            "t.yaml:3: train.warmup_steps is 200 and train.steps is 100: the warm-up is clipped to "
            "100 steps");
  notes.clear();
  EXPECT_EQ(parse_config("train: {steps: 100, warmup_steps: 100}", "t.yaml", {}, &notes)
                .train.warmup_steps,
            100);
  EXPECT_TRUE(notes.empty());
}

/// A config in which no key has its default, with numbers that a careless printer would round.
Config unusual() {
  return parse(
      "model: {n_layer: 3, n_head: 12, n_kv_head: 12, n_embd: 240, head_dim: 22, n_ff: 100, "
      "block_size: 7,\n"
      "        vocab_size: 99, position: learned, rope_style: interleaved, rope_base: "
      "123456.789012345678,\n"
      "        norm: layernorm, norm_eps: 1e-5, mlp: gelu_erf, qk_norm: true, bias: all,\n"
      "        tie_embeddings: false, dropout: 0.30000000000000004, logit_softcap: 30,\n"
      "        attention: mla, kv_rank: 40, window: 5, window_pattern: LLG, sinks: 2, sink: "
      "learned}\n"
      "data: {corpus: \"a \\\"b\\\" \\\\ # é:\\n\\tx\", tokenizer: bpe, vocab_size: 300, "
      "val_fraction: "
      "0.05, order: sequential}\n"
      "train: {steps: 900000000000, batch_size: 3, grad_accumulation: 2, optimizer: adamw, lr: "
      "3.0000000000000001e-4,\n"
      "        momentum: 0.9, adamw_lr: 1e-4, beta1: 0.8, beta2: 0.99, weight_decay: 0.01, "
      "clip_norm: 0.5,\n"
      "        schedule: cosine, warmup_steps: 9, decay_fraction: 0.25, final_lr: 0.1, eval_every: "
      "11,\n"
      "        save_every: 12, precision: bf16, seed: 9007199254740991, threads: 2,\n"
      "        device: cuda, deterministic: false, tf32: true, shard_optimizer: true}\n"
      "sweep: {n_kv_head: [6, 2], seeds: [0, 9], fair: same-params}\n");
}

TEST(Print, YamlReadsBackAsTheSameConfig) {
  const Config c = unusual();
  const std::string yaml = to_yaml(c);
  EXPECT_TRUE(parse(yaml) == c) << yaml;
  EXPECT_THAT(yaml, HasSubstr("  norm_eps: 1.0e-05\n"));
  EXPECT_THAT(yaml, HasSubstr("  n_kv_head: [6, 2]\n"));
  EXPECT_TRUE(parse(to_yaml(Config{})) == Config{});
}

TEST(Print, AListOfChoicesReadsBack) {
  const Config c = parse("sweep: {also: [window, learned-sink]}");
  EXPECT_EQ(c.sweep.also, (std::vector<Relief>{Relief::window, Relief::learned_sink}));
  EXPECT_THAT(to_yaml(c), HasSubstr("  also: [window, learned-sink]\n"));
  EXPECT_TRUE(parse(to_yaml(c)) == c);
  EXPECT_EQ(parse("sweep: {also: []}").sweep.also, std::vector<Relief>());
  for (const char* bad : {"[mla, mla]", "[gqa]", "mla", "[[mla]]"}) {
    EXPECT_THAT(refusal(std::string("sweep: {also: ") + bad + "}"),
                HasSubstr("must be a list of different ones of mla, window or learned-sink"));
  }
}

TEST(Print, DifferencesNameEveryKeyThatDiffers) {
  Config c;
  c.model.n_kv_head = 8;
  c.data.corpus = "x";
  const std::vector<Difference> found = differences(Config{}, c);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key, "model.n_kv_head");
  EXPECT_EQ(found[0].left, "2");
  EXPECT_EQ(found[0].right, "8");
  EXPECT_EQ(found[1].key, "data.corpus");
  // unusual() changes every key but rope_head_dim, which learned positions leave at 0, and
  // sweep.also, whose models it has already.
  size_t keys = 0;
  for_each_field(c, [&](std::string_view, const Field&, const auto&) { ++keys; });
  EXPECT_EQ(differences(Config{}, unusual()).size(), keys - 2);
}

TEST(Print, ReferenceExplainsEveryKey) {
  const std::string text = reference();
  EXPECT_THAT(text, HasSubstr("model.n_kv_head: 2 "));
  EXPECT_THAT(text, HasSubstr("(cosine, linear, constant or wsd)"));
  const Config c;
  for_each_field(c, [&](std::string_view section, const Field& field, const auto&) {
    EXPECT_THAT(text, HasSubstr(fmt::format("{}.{}: ", section, field.name)));
    EXPECT_FALSE(field.help.empty()) << field.name;
  });
}

}  // namespace
}  // namespace headroom::configs
