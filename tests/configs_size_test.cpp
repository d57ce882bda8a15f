// The formulas for parameters, cache, memory and FLOP, against numbers worked out by hand.
#include "configs/size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/count.h"
#include "configs/load.h"
#include "configs/memory.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

using testing::HasSubstr;

ModelConfig model_of(const std::string& keys) {
  return parse_config("model: {" + keys + "}", "t").model;
}

TEST(Size, AttentionAndCacheShrinkWithKvHeadsAsPublished) {
  const std::vector<std::vector<int64_t>> published = {
      {8, 262144, 2048}, {4, 196608, 1024}, {2, 163840, 512}, {1, 147456, 256}};
  for (const auto& row : published) {
    ModelConfig m;
    m.n_kv_head = row[0];
    EXPECT_EQ(attention_parameters_per_layer(m), row[1]);
    EXPECT_EQ(cache_bytes(m, 1, 1, KVTypes()), 6 * row[2]);  // 12, 6, 3 and 1.5 KiB over six layers
    int64_t listed = 0;
    for (const ParameterSize& each : layer_parameters(m, 0)) {
      listed += each.name.find("self_attn") != std::string::npos ? each.count() : 0;
    }
    EXPECT_EQ(listed, row[1]);
  }
}

TEST(Size, WhatATokenAddsToTheCacheOfALayer) {
  const KVShape gqa = kv_shape(model_of("n_kv_head: 4, head_dim: 24"));
  EXPECT_EQ(gqa.heads, 4);
  EXPECT_EQ(gqa.key_size, 24);
  EXPECT_EQ(gqa.value_size, 24);
  EXPECT_FALSE(gqa.value_in_key);
  const KVShape mla =
      kv_shape(model_of("attention: mla, n_kv_head: 8, kv_rank: 50, rope_head_dim: 6"));
  EXPECT_EQ(mla.heads, 1);
  EXPECT_EQ(mla.key_size, 56);
  EXPECT_EQ(mla.value_size, 50);
  EXPECT_TRUE(mla.value_in_key);
}

TEST(Size, WindowsGoByTheLettersOfThePattern) {
  const ModelConfig all = model_of("window: 8, sinks: 2");
  const ModelConfig some = model_of("window: 8, window_pattern: LLG");
  for (int64_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(layer_window(all, layer).window, 8);
    EXPECT_EQ(layer_window(all, layer).sinks, 2);
    EXPECT_EQ(layer_window(some, layer).window, layer % 3 == 2 ? 0 : 8) << layer;
    EXPECT_EQ(layer_window(ModelConfig{}, layer).window, 0);
  }
  const ModelConfig global_sees_all = model_of("window: 8, window_pattern: GL, sinks: 2");
  EXPECT_EQ(layer_window(global_sees_all, 0).sinks, 0);
  EXPECT_EQ(layer_window(global_sees_all, 1).sinks, 2);
}

TEST(Size, CacheFormulaShowsItsFactors) {
  const ModelConfig m;
  EXPECT_EQ(
      cache_formula(m, 100, 3, kv_types_of(DType::bf16)),
      "2 * n_layer 6 * n_kv_head 2 * head_dim 32 * tokens 100 * batch 3 * bytes 2 = 460800 bytes");
  EXPECT_EQ(cache_bytes(m, 100, 3, kv_types_of(DType::bf16)), 460800);
}

TEST(Size, ScalesOfCodedVectorsCount) {
  // 32 numbers share a scale of 2 bytes; 33 begin a second one.
  EXPECT_EQ(kv_vector_bytes(KVType::int8, 32), 34);
  EXPECT_EQ(kv_vector_bytes(KVType::int8, 33), 37);
  EXPECT_EQ(kv_vector_bytes(KVType::int4, 32), 18);
  EXPECT_EQ(kv_vector_bytes(KVType::int4, 33), 21);
  EXPECT_EQ(kv_vector_bytes(KVType::f16, 33), 66);
  const ModelConfig m;  // 6 layers, 2 KV heads of 32
  const KVTypes mixed{KVType::int8, KVType::int4};
  EXPECT_EQ(cache_bytes_per_token(m, mixed), 2 * (34 + 18));
  EXPECT_EQ(cache_bytes(m, 100, 3, mixed), 6 * 104 * 300);
  EXPECT_EQ(cache_formula(m, 100, 3, mixed),
            "n_layer 6 * n_kv_head 2 * ((head_dim 32 + scales 2 * 1) + (head_dim 32 / 2 + scales 2 "
            "* 1)) * tokens 100 * batch 3 = 187200 bytes");
}

TEST(Size, ALatentIsStoredOnce) {
  const ModelConfig m = model_of("attention: mla, kv_rank: 48, rope_head_dim: 16, n_kv_head: 8");
  EXPECT_EQ(cache_bytes_per_token(m, {}), (48 + 16) * 4);
  EXPECT_EQ(cache_bytes_per_token(m, {KVType::int8, KVType::int8}), 64 + 2 * 2);
}

std::vector<std::string> names_and_shapes(const std::vector<ParameterSize>& list) {
  std::vector<std::string> lines;
  lines.reserve(list.size());
  for (const ParameterSize& each : list) {
    lines.push_back(fmt::format("{} {}", each.name, fmt::join(each.shape, "x")));
  }
  return lines;
}

TEST(Size, ParametersAreNamedAndLaidOutAsInLlama) {
  const ModelConfig m = model_of(
      "n_layer: 1, n_embd: 32, n_head: 4, n_kv_head: 2, n_ff: 48, mlp: swiglu, tie_embeddings: "
      "false");
  EXPECT_EQ(
      names_and_shapes(parameters(m, 29)),
      (std::vector<std::string>{
          "model.embed_tokens.weight 29x32", "model.layers.0.input_layernorm.weight 32",
          "model.layers.0.self_attn.q_proj.weight 32x32",
          "model.layers.0.self_attn.k_proj.weight 16x32",
          "model.layers.0.self_attn.v_proj.weight 16x32",
          "model.layers.0.self_attn.o_proj.weight 32x32",
          "model.layers.0.post_attention_layernorm.weight 32",
          "model.layers.0.mlp.gate_proj.weight 48x32", "model.layers.0.mlp.up_proj.weight 48x32",
          "model.layers.0.mlp.down_proj.weight 32x48", "model.norm.weight 32",
          "lm_head.weight 29x32"}));
}

TEST(Size, BiasesNormsAndPositionsAreListedWhereTheyExist) {
  const ModelConfig m = model_of(
      "n_layer: 2, n_embd: 8, n_head: 2, n_kv_head: 1, n_ff: 16, block_size: 5, position: learned, "
      "norm: layernorm, bias: all, qk_norm: true");
  const std::vector<std::string> lines = names_and_shapes(parameters(m, 3));
  ASSERT_EQ(lines.size(), 2U + 2U * 18U + 2U);
  EXPECT_EQ(lines[1], "model.embed_positions.weight 5x8");
  EXPECT_EQ(lines[3], "model.layers.0.input_layernorm.bias 8");
  EXPECT_THAT(lines, testing::Contains("model.layers.1.self_attn.k_proj.bias 4"));
  EXPECT_THAT(lines, testing::Contains("model.layers.1.self_attn.q_norm.weight 4"));
  EXPECT_THAT(lines, testing::Contains("model.layers.1.mlp.up_proj.bias 16"));
  EXPECT_EQ(lines.back(), "model.norm.bias 8");
  // 24 embedding + 40 positions + 16 last norm; per block 2 * 16 norms, q and o (64 + 8 each), k
  // and v (32 + 4 each), 8 qk-norm, up 128 + 16, down 128 + 8.
  EXPECT_EQ(parameter_count(m, 3), 24 + 40 + 16 + 2 * (32 + 144 + 72 + 8 + 144 + 136));
  EXPECT_EQ(attention_parameters_per_layer(m), 144 + 72);
  const ModelConfig norm_only = model_of("norm: layernorm, bias: norm");
  EXPECT_EQ(attention_parameters_per_layer(norm_only), 163840);
  EXPECT_EQ(layer_parameters(norm_only, 0).size(), 10U);
}

TEST(Size, LatentAttentionIsListedInTheOrderOfItsForwardPass) {
  const ModelConfig m = model_of(
      "n_layer: 1, n_embd: 8, n_head: 2, n_kv_head: 2, n_ff: 16, attention: mla, kv_rank: 5, "
      "rope_head_dim: 6, qk_norm: true, bias: all, norm: layernorm, sink: learned");
  const std::vector<std::string> lines = names_and_shapes(layer_parameters(m, 0));
  const std::string at = "model.layers.0.self_attn.";
  EXPECT_EQ(std::vector<std::string>(lines.begin() + 2, lines.begin() + 14),
            (std::vector<std::string>{at + "sinks 2", at + "q_proj.weight 20x8",
                                      at + "q_proj.bias 20", at + "kv_a_proj_with_mqa.weight 11x8",
                                      at + "kv_a_proj_with_mqa.bias 11", at + "q_norm.weight 10",
                                      at + "k_norm.weight 6", at + "kv_a_layernorm.weight 5",
                                      at + "k_b_proj.weight 8x5", at + "v_b_proj.weight 8x5",
                                      at + "o_proj.weight 8x8", at + "o_proj.bias 8"}));
  EXPECT_EQ(attention_parameters_per_layer(m), 160 + 20 + 88 + 11 + 40 + 40 + 64 + 8);
  // Learned positions: nothing is rotated.
  const std::vector<std::string> unrotated = names_and_shapes(layer_parameters(
      model_of("n_layer: 1, n_embd: 8, n_head: 2, n_kv_head: 2, attention: mla, kv_rank: 5, "
               "position: learned, qk_norm: true"),
      0));
  EXPECT_EQ(unrotated[1], at + "q_proj.weight 8x8");
  EXPECT_EQ(unrotated[2], at + "kv_a_proj_with_mqa.weight 5x8");
  EXPECT_EQ(unrotated[3], at + "q_norm.weight 4");
  EXPECT_EQ(unrotated[4], at + "kv_a_layernorm.weight 5");
}

TEST(Size, GptSmallHas123Point6MillionParameters) {
  const Config c = load_config(HEADROOM_SOURCE_DIR "/configs/gpt-124m.yaml");
  // 12 * (4 * 768^2 + 2 * 768 * 3072) + 50257 * 768 + 25 * 768
  EXPECT_EQ(parameter_count(c.model, c.model.vocab_size), 123551232);
}

TEST(Size, MemoryOfTrainingIsCountedPerOptimizer) {
  const ModelConfig m = model_of("n_layer: 2, n_embd: 8, n_head: 2, n_kv_head: 1, n_ff: 16");
  // Per block: q, o 64, k, v 32, up, down 128 = 448 in matrices and 16 in norms; outside 24 + 8.
  EXPECT_EQ(weights_bytes(m, 3), 4 * (2 * 464 + 32));
  EXPECT_EQ(optimizer_bytes(m, 3, OptimizerKind::adamw), 8 * (2 * 464 + 32));
  EXPECT_EQ(optimizer_bytes(m, 3, OptimizerKind::muon), 2 * (4 * 448 + 8 * 16) + 8 * 32);
}

TEST(Size, ActivationsFollowTheDocumentedFormula) {
  const ModelConfig m = model_of("n_layer: 2, n_embd: 8, n_head: 2, n_kv_head: 1, n_ff: 16");
  // Block: 4 * 8 + 2 * 3 * 4 + 2 * 16 = 88 elements and 4 float32; once: 7 * 8 + 2 * 16 = 88
  // elements.
  EXPECT_EQ(activation_bytes(m, 3, 10, 2, 4), 20 * (2 * (88 * 4 + 16) + 88 * 4) + 20 * 3 * 8);
  EXPECT_EQ(activation_bytes(m, 3, 10, 2, 2), 20 * (2 * (88 * 2 + 16) + 88 * 2) + 20 * 3 * 8);
}

TEST(Size, ActivationsOfLatentAttention) {
  const std::string keys =
      "n_layer: 2, n_embd: 8, n_head: 2, n_kv_head: 2, n_ff: 16, attention: mla, kv_rank: 5, "
      "rope_head_dim: 2";
  // Block: 4 * 8 + 2 * (2 * 4 + 2 + 15) + 15 + 2 + 2 * 16 = 131 elements, and 4 float32.
  EXPECT_EQ(activation_bytes(model_of(keys), 3, 10, 2, 4),
            20 * (2 * (131 * 4 + 16) + 88 * 4) + 20 * 3 * 8);
  // qk-norm keeps 2 * (4 + 2) + 2 more.
  EXPECT_EQ(activation_bytes(model_of(keys + ", qk_norm: true"), 3, 10, 2, 4),
            20 * (2 * (145 * 4 + 16) + 88 * 4) + 20 * 3 * 8);
}

TEST(Size, FlopOfAStepCountMatricesAndCausalAttention) {
  const ModelConfig m =
      model_of("n_layer: 2, n_embd: 8, n_head: 2, n_kv_head: 1, n_ff: 16, block_size: 4");
  // Matrices 2 * 448 and the tied head 3 * 8; attention 2 layers * 8 wide * 5.
  EXPECT_EQ(step_flop(m, 3, 12), 6 * (2 * 448 + 24) * 12 + 6 * 2 * 8 * 5 * 12);
  const Config quick = parse_config("train: {batch_size: 3, grad_accumulation: 2}", "t");
  EXPECT_EQ(tokens_per_step(quick), 3 * 2 * 256);
}

TEST(Size, FlopOfWindowsCountTheKeysThatAreSeen) {
  const std::string shape =
      "n_layer: 3, n_embd: 8, n_head: 2, n_kv_head: 1, n_ff: 16, block_size: 6, window: 2, sinks: "
      "1, "
      "window_pattern: ";
  // Six queries see 1 + 2 + 3 + 4 + 5 + 6 keys, or 1 + 2 + 3 + 3 + 3 + 3 under the window and sink.
  // Each costs 2 heads * (4 + 4) multiply-adds.
  const int64_t all = 21 * 16, local = 15 * 16, matrices = 3 * 448;
  const ModelConfig llg = model_of(shape + "LLG"), lg = model_of(shape + "LG");
  EXPECT_EQ(local_layers(llg), 2);
  EXPECT_EQ(local_layers(lg), 2);  // L, G, L
  EXPECT_EQ(step_flop(llg, 3, 12), 6 * ((matrices + 24) * 12 + 2 * (2 * local + all)));
  EXPECT_EQ(prefill_flop(llg, 3, 6), 2 * (matrices * 6 + 24 + 2 * local + all));
  EXPECT_EQ(decode_flop(llg, 3, 6), 2 * (matrices + 24 + 16 * (2 * 3 + 6)));
  EXPECT_EQ(decode_flop(llg, 3, 2), 2 * (matrices + 24 + 16 * 3 * 2));
  EXPECT_EQ(local_layers(model_of("n_layer: 7, window: 2, window_pattern: LLG")), 5);
  EXPECT_EQ(local_layers(model_of("n_layer: 2000000000, window: 2, window_pattern: LG")),
            1000000000);
}

TEST(Size, CachePerTokenOfAModelWithWindowsIsThatOfAFullContext) {
  const std::string shape = "n_layer: 4, n_head: 2, n_kv_head: 1, n_embd: 8, block_size: 64";
  const int64_t layer = 2 * 4 * 4;  // K and V of one head of 4 in f32
  EXPECT_EQ(mean_cache_bytes_per_token(model_of(shape), KVTypes()), 4 * layer);
  // Two layers hold 16 of 64 tokens.
  EXPECT_EQ(mean_cache_bytes_per_token(
                model_of(shape + ", window: 14, sinks: 2, window_pattern: LG"), KVTypes()),
            2 * layer + 2 * layer / 4);
}

TEST(Size, FlopOfLatentAttentionAreThoseOfTheAbsorbedForm) {
  const ModelConfig m = model_of(
      "n_layer: 1, n_embd: 8, n_head: 2, n_kv_head: 2, n_ff: 16, block_size: 4, attention: mla, "
      "kv_rank: 5, rope_head_dim: 2");
  // q 12 * 8, kv_a 7 * 8, per head up 2 * (8 * 5), o 64, MLP 256; a key is 7 wide, a value 5.
  const int64_t matrices = 96 + 56 + 80 + 64 + 256;
  EXPECT_EQ(step_flop(m, 3, 8), 6 * ((matrices + 24) * 8 + 2 * 10 * 2 * 12));
  EXPECT_EQ(decode_flop(m, 3, 9), 2 * (matrices + 24 + 9 * 2 * 12));
}

// CFG-06
TEST(Size, ArithmeticDoesNotWrap) {
  const ModelConfig deep = model_of("n_layer: 2000000000");
  EXPECT_EQ(parameter_count(deep, 65), 2000000000LL * (163840 + 524288 + 512) + 65 * 256 + 256);
  EXPECT_THROW(parameters(deep, 65), InputError);
  // 12 * 65536^2 * 6 passes 2^31; (2^31 - 8)^2 passes 2^61 for each of the matrices.
  EXPECT_EQ(parameter_count(model_of("n_embd: 65536, n_kv_head: 8, n_ff: 0, n_layer: 1"), 1),
            12LL * 65536 * 65536 + 4LL * 65536);
  const ModelConfig wide = model_of("n_embd: 2147483632, n_ff: 0, n_layer: 2147483647");
  EXPECT_EQ(parameter_count(wide, 1), Count::kMost);
  EXPECT_EQ(weights_bytes(wide, 1), Count::kMost);
  EXPECT_EQ(optimizer_bytes(wide, 1, OptimizerKind::muon), Count::kMost);
  EXPECT_EQ(cache_bytes(wide, 10000000, 1000, KVTypes()), Count::kMost);
  EXPECT_EQ(activation_bytes(wide, 1, 2147483647, 1000000, 4), Count::kMost);
  EXPECT_EQ(step_flop(wide, 1, 1000), Count::kMost);
  EXPECT_EQ((Count(Count::kMost) + Count(1)).value(), Count::kMost);
  EXPECT_EQ((Count(1LL << 40) * (1LL << 22)).value(), 1LL << 62);
}

TEST(Size, BytesReadWell) {
  EXPECT_EQ(human_bytes(512), "512 bytes");
  EXPECT_EQ(human_bytes(12 * 1024), "12.0 KiB");
  EXPECT_EQ(human_bytes(3LL << 39), "1.5 TiB");
  EXPECT_EQ(human_bytes(Count::kMost), "more than 8 EiB");
}

std::string training_refusal(const std::string& yaml, int64_t vocab_size = 65) {
  try {
    require_training_memory(parse_config(yaml, "t"), vocab_size, 4, 16LL << 30);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

// CFG-06
TEST(Memory, TrainingThatCannotFitIsRefusedWithTheKeyToLower) {
  EXPECT_EQ(training_refusal("model: {}"), "");
  EXPECT_THAT(training_refusal("model: {block_size: 100000000}"),
              HasSubstr("lower model.block_size (now 100000000)"));
  EXPECT_THAT(training_refusal("train: {batch_size: 900000}"),
              HasSubstr("lower train.batch_size (now 900000)"));
  EXPECT_THAT(training_refusal("model: {n_embd: 65536, n_ff: 0}"),
              HasSubstr("lower model.n_embd (now 65536)"));
  EXPECT_THAT(training_refusal("model: {n_embd: 2147483632, n_ff: 0}"),
              HasSubstr("lower model.n_embd"));
  EXPECT_THAT(training_refusal("model: {n_ff: 2000000000}"), HasSubstr("lower model.n_ff"));
  EXPECT_THAT(training_refusal("model: {}", 2000000000), HasSubstr("lower model.vocab_size"));
  const std::string message = training_refusal("model: {n_layer: 2000000000}");
  EXPECT_THAT(message, HasSubstr("lower model.n_layer (now 2000000000)"));
  // 4 * (688640 * 2e9 + 16896) bytes of weights, 2^50 bytes each.
  EXPECT_THAT(message, HasSubstr("weights 4.9 PiB"));
  EXPECT_THAT(message, HasSubstr("optimizer 4.9 PiB"));
  EXPECT_THAT(message, HasSubstr("but 16.0 GiB are available"));
  // 2 * 2e9 * 2 * 32 * 256 * 4 bytes.
  EXPECT_THAT(message, HasSubstr("the cache of one sequence of block_size would take 238.4 TiB"));
}

// CFG-06
TEST(Memory, ACacheThatCannotFitIsRefusedWithItsFormula) {
  const ModelConfig m;
  EXPECT_NO_THROW(require_cache_memory(m, 65, 1000, 1, KVTypes(), "--tokens", 1LL << 30));
  try {
    require_cache_memory(m, 65, 10000000, 1, KVTypes(), "--tokens", 16LL << 30);
    FAIL() << "30 GB fit into 16 GiB";
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("cache 28.6 GiB"));
    EXPECT_THAT(e.what(), HasSubstr("16.0 GiB are available: lower --tokens"));
    EXPECT_THAT(e.what(), HasSubstr("tokens 10000000 * batch 1 * bytes 4 = 30720000000 bytes"));
  }
}

TEST(Memory, ThisMachineHasSome) {
  const int64_t bytes = available_memory();
  EXPECT_GT(bytes, 1LL << 24);
  EXPECT_LT(bytes, 1LL << 50);
}

}  // namespace
}  // namespace headroom::configs
