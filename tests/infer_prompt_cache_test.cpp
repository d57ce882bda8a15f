// A prompt's cache on disk: the same text with it and without it, whatever the prompts share
// (KVC-08), and refused where it doesn't belong.
#include "infer/prompt_cache.h"

#include "infer/beam.h"
#include "infer/speculate.h"
#include "infer_model.h"
#include "run_program.h"
#include "tensor/file.h"

namespace headroom::testing {
namespace {

using infer::Generated;
using infer::GenerateOptions;
using infer::PromptCacheFile;
using infer::PromptCacheKey;
using Tokens = std::vector<int32_t>;

PromptCacheKey key_of(const nn::GPT& model, const GenerateOptions& how) {
  return infer::prompt_cache_key(model, how.cache, how.dtype, "f32");
}

/// Generates and saves the cache of the prompt.
Generated save(const nn::GPT& model, const Tokens& prompt, GenerateOptions how,
               const std::filesystem::path& path) {
  how.on_prompts = [&](infer::BlockCache& cache) {
    infer::save_prompt_cache(path, key_of(model, how), cache, 0, prompt);
  };
  return run(model, {prompt}, how);
}

Generated load(const nn::GPT& model, const Tokens& prompt, GenerateOptions how,
               const std::filesystem::path& path) {
  const PromptCacheFile file(path, key_of(model, how));
  how.prompt_cache = &file;
  return run(model, {prompt}, how);
}

/// The first `shared` tokens of `from`, and some more.
Tokens sharing(const Tokens& from, int64_t shared, int64_t more) {
  Tokens prompt(from.begin(), from.begin() + shared);
  for (const int32_t token : tokens(more, 99)) {
    prompt.push_back((token + 1) % static_cast<int32_t>(kVocab));
  }
  return prompt;
}

std::vector<configs::ModelConfig> configs_to_try() {
  std::vector<configs::ModelConfig> all = {small_config(2, 400), small_config(1, 400),
                                           small_config(8, 400), small_config(2, 400)};
  all[1].position = configs::Position::learned;
  all[2].window = 30;
  all[2].window_pattern = "LG";
  all[3].attention = configs::AttentionKind::mla;
  return all;
}

TEST(PromptCache, GivesTheTextOfAFreshRun) {
  const TemporaryFolder folder;
  const auto path = folder / "cache.safetensors";
  const auto stored = tokens(150, 1);
  for (const auto& config : configs_to_try()) {
    const auto model = small_model(config, DType::f64);
    for (const std::string cache : {"static", "static,dtype=int8", "static,k=int8,v=int4",
                                    "static,dtype=f16,rotate=hadamard", "static,place=file"}) {
      const bool apart =
          cache.find("v=") != std::string::npos || cache.find("had") != std::string::npos;
      if (config.mla() && apart) {
        continue;
      }
      save(*model, stored, greedy(3, cache), path);
      for (const int64_t shared : {0, 1, 64, 75, 150}) {
        for (const int64_t more : {0, 1, 40}) {
          if (shared + more == 0) {
            continue;
          }
          const Tokens prompt = sharing(stored, shared, more);
          const auto expected = run(*model, {prompt}, greedy(20, cache));
          const auto got = load(*model, prompt, greedy(20, cache), path);
          EXPECT_EQ(got.tokens, expected.tokens) << cache << ", shared " << shared;
          EXPECT_LE(error(got.log_probs[0], expected.log_probs[0]), 1e-9);
          const bool dropped = config.window > 0 && shared < 150 && shared > 0;
          if (!dropped) {
            EXPECT_EQ(got.stats.loaded_tokens, std::min(shared, shared + more - 1));
          }
          EXPECT_EQ(got.stats.loaded_tokens + got.stats.prefill_tokens, shared + more);
        }
      }
    }
  }
}

/// A window that has moved on has nothing for a shorter beginning: it is computed again.
TEST(PromptCache, OfAWindowServesWhatGoesOnFromItsEnd) {
  const TemporaryFolder folder;
  const auto path = folder / "cache.safetensors";
  const auto model = small_model(small_config(2, 64), DType::f64);
  const auto stored = tokens(300, 1);
  for (const std::string cache : {"static,window=20,sinks=3", "static,window=20,dtype=int8"}) {
    save(*model, stored, greedy(3, cache), path);
    for (const auto& [shared, more, loaded] :
         {std::tuple{300, 0, 299}, {300, 50, 300}, {150, 50, 0}, {0, 50, 0}}) {
      const Tokens prompt = sharing(stored, shared, more);
      const auto got = load(*model, prompt, greedy(30, cache), path);
      EXPECT_EQ(got.tokens, run(*model, {prompt}, greedy(30, cache)).tokens) << cache << shared;
      EXPECT_EQ(got.stats.loaded_tokens, loaded);
    }
  }
}

/// 50 tokens without a window go on under the window that a text past block_size gets; 100 that
/// were computed under it don't go on under another.
TEST(PromptCache, MindsWhichKeysItsTokensSaw) {
  const TemporaryFolder folder;
  const auto path = folder / "cache.safetensors";
  const auto model = small_model(small_config(2, 64), DType::f64);
  save(*model, tokens(50, 1), greedy(5), path);
  const auto longer = sharing(tokens(50, 1), 50, 40);
  const auto got = load(*model, longer, greedy(40), path);
  EXPECT_EQ(got.stats.loaded_tokens, 50);
  EXPECT_EQ(got.tokens, run(*model, {longer}, greedy(40)).tokens);
  const auto key = key_of(*model, greedy(5));
  infer::BlockCache narrow(model->config(), infer::BlockTable({64, 4}, 200), 1, DType::f64);
  cached_logits(*model, narrow, {tokens(100, 1)}, {64});
  infer::save_prompt_cache(path, key, narrow, 0, tokens(100, 1));
  infer::BlockCache wide(model->config(), infer::BlockTable({}, 200), 1, DType::f64);
  EXPECT_EQ(PromptCacheFile(path, key).load(wide, 0, sharing(tokens(100, 1), 100, 5)), 0);
  infer::BlockCache same(model->config(), infer::BlockTable({64, 4}, 200), 1, DType::f64);
  EXPECT_EQ(PromptCacheFile(path, key).load(same, 0, sharing(tokens(100, 1), 100, 5)), 100);
}

std::string file_refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(PromptCache, RefusesWhatIsNotItsOwn) {
  const TemporaryFolder folder;
  const auto path = folder / "cache.safetensors";
  auto config = small_config(2, 100);
  const auto model = small_model(config, DType::f64);
  const auto prompt = tokens(70, 1);
  const auto how = greedy(3);
  save(*model, prompt, how, path);
  const auto message = [&](const nn::GPT& other, const GenerateOptions& options) {
    return file_refusal([&] { load(other, prompt, options, path); });
  };
  EXPECT_EQ(message(*model, how), "");
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto other = small_model(config, DType::f64);
  Tensor weight = other->parameters()[0].value.value();
  weight.data<double>()[0] += 1;
  has(message(*other, how), "other weights");
  config.rope_base = 500;
  has(message(*small_model(config, DType::f64), how), "other weights");
  has(message(*model, greedy(3, "static,dtype=int8")), "holds a cache static,dtype=f64, and this");
  has(message(*model, greedy(3, "static,window=16")), "holds a cache static,dtype=f64, and this");
  EXPECT_EQ(message(*model, greedy(3, "static,place=file")), "");
  write_safetensors(path, {{"tokens", Tensor::from(prompt, {70})}}, {});
  has(message(*model, how), "is no prompt cache");
  write_file(path, "nothing");
  has(message(*model, how), path.string());
}

/// Tensors that are missing or of another size are refused by name.
TEST(PromptCache, RefusesDamage) {
  const TemporaryFolder folder;
  const auto path = folder / "cache.safetensors";
  const auto model = small_model(small_config(2, 100), DType::f64);
  const auto prompt = tokens(70, 1);
  save(*model, prompt, greedy(3), path);
  const SafetensorsFile whole(path);
  const auto message_with = [&](const std::string& name, const std::optional<Tensor>& tensor) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& [each, info] : whole.tensors()) {
      if (each != name) {
        tensors.emplace_back(each, whole.read(each));
      } else if (tensor) {
        tensors.emplace_back(each, *tensor);
      }
    }
    const auto damaged = folder / "damaged.safetensors";
    write_safetensors(damaged, tensors, whole.metadata());
    return file_refusal([&] { load(*model, prompt, greedy(3), damaged); });
  };
  for (const std::string name : {"tokens", "layers.1.starts", "layers.1.k", "layers.0.v"}) {
    EXPECT_NE(message_with(name, {}), "") << name;
  }
  EXPECT_NE(message_with("layers.1.k", Tensor::zeros({70, 2, 7}, DType::f64)), "");
  EXPECT_NE(message_with("layers.1.k", Tensor::zeros({69, 2, 8}, DType::f64)), "");
  EXPECT_NE(message_with("layers.1.k", Tensor::zeros({70, 2, 8}, DType::f32)), "");
  EXPECT_NE(message_with("layers.0.starts", Tensor::from(Tokens{0, 63}, {2})), "");
  EXPECT_NE(message_with("layers.0.starts", Tensor::from(Tokens{64, 0}, {2})), "");
  EXPECT_NE(message_with("layers.0.starts", Tensor::from(Tokens{-64, 0}, {2})), "");
}

TEST(PromptCache, ServesBeamsAndDrafts) {
  const TemporaryFolder folder;
  const auto path = folder / "cache.safetensors";
  const auto model = small_model(small_config(2, 400), DType::f64);
  const auto prompt = sharing(tokens(150, 1), 150, 10);
  save(*model, tokens(150, 1), greedy(3), path);
  const PromptCacheFile file(path, key_of(*model, greedy(3)));
  auto how = greedy(20);
  how.beams = 3;
  const auto search = [&] {
    return infer::beam_search(
        *model, {prompt, tokens(5)}, how, [](int64_t, std::span<const int32_t>) { return false; },
        [] { return true; });
  };
  const auto expected = search();
  how.prompt_cache = &file;
  const auto got = search();
  EXPECT_EQ(got.best.tokens, expected.best.tokens);
  EXPECT_EQ(got.best.stats.loaded_tokens, 150);
  auto guessing = greedy(20);
  guessing.draft_tokens = 3;
  guessing.prompt_cache = &file;
  EXPECT_EQ(
      infer::speculate(*model, *model, {prompt}, guessing, [](int64_t, int32_t) { return true; })
          .tokens,
      run(*model, {prompt}, greedy(20)).tokens);
}

}  // namespace
}  // namespace headroom::testing
