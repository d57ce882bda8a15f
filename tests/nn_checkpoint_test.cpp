// Checkpoints: tied matrices (CKP-04), element types (CKP-05), and files that are not of the model
// (CKP-06).
#include "nn/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "golden.h"
#include "run_program.h"

namespace headroom::testing {

namespace {

using Tensors = std::vector<std::pair<std::string, Tensor>>;

configs::ModelConfig shape(bool tied = true) {
  configs::ModelConfig model;
  model.n_layer = 2;
  model.n_head = model.n_kv_head = 8;
  model.n_embd = 64;
  model.given_n_ff = 96;
  model.block_size = 16;
  model.tie_embeddings = tied;
  return model;
}

nn::GPT fresh(const configs::ModelConfig& model, uint64_t seed, DType dtype = DType::f32) {
  return nn::GPT(model, 29, nn::Scope{.seed = seed, .dtype = dtype});
}

double loss_of(const nn::GPT& model) {
  std::vector<int32_t> tokens, targets;
  for (int32_t i = 0; i < 32; ++i) {
    tokens.push_back(i * 11 % 29);
    targets.push_back(i * 5 % 29);
  }
  const nn::Pass pass{
      .dtype = model.dtype(), .cache = nullptr, .counts = {}, .mask = {}, .dropout = nullptr};
  return model.loss(Tensor::from(tokens, {2, 16}), Tensor::from(targets, {2, 16}), pass)
      .value()
      .item();
}

Tensor cast(const Tensor& x, DType dtype) {
  Tensor y = Tensor::empty(x.shape(), dtype);
  kernels::backend(kCpu).cast(x, y);
  return y;
}

class Checkpoint : public ::testing::Test {
 protected:
  /// Loads `tensors` as a file into `model`; the message of the refusal, empty when there is none.
  std::string load(nn::GPT& model, const Tensors& tensors) {
    write_safetensors(folder / "w.safetensors", tensors, {});
    notes.clear();
    try {
      nn::load_parameters(model, SafetensorsFile(folder / "w.safetensors"), notes);
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  }

  TemporaryFolder folder;
  std::vector<std::string> notes;
};

Tensors renamed(Tensors tensors, const std::string& from, const std::string& to) {
  for (auto& [name, tensor] : tensors) name = name == from ? to : name;
  return tensors;
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

}  // namespace

TEST_F(Checkpoint, RestoresEveryWeightAndChangesTheVersion) {
  for (const bool tied : {true, false}) {
    const nn::GPT source = fresh(shape(tied), 1);
    nn::GPT target = fresh(shape(tied), 2);
    const uint64_t before = target.version();
    EXPECT_EQ(load(target, parameter_tensors(source)), "");
    EXPECT_EQ(loss_of(target), loss_of(source));
    EXPECT_NE(target.version(), before);
    EXPECT_TRUE(notes.empty());
  }
}

TEST_F(Checkpoint, OneNameIsEnoughForATiedModel) {
  const nn::GPT source = fresh(shape(), 1);
  const Tensors tensors = parameter_tensors(source);
  nn::GPT a = fresh(shape(), 2), b = fresh(shape(), 3), c = fresh(shape(), 4);
  EXPECT_EQ(load(a, tensors), "");
  EXPECT_EQ(load(b, renamed(tensors, kEmbedding, kHead)), "");
  Tensors both = tensors;
  both.emplace_back(kHead, tensors[0].second);
  EXPECT_EQ(load(c, both), "");
  for (const nn::GPT* model : {&a, &b, &c}) EXPECT_EQ(loss_of(*model), loss_of(source));
}

TEST_F(Checkpoint, TwoDifferentCopiesOfATiedMatrixAreRefused) {
  Tensors both = parameter_tensors(fresh(shape(), 1));
  both.emplace_back(kHead, both[0].second.clone());
  both.back().second.data<float>()[7] += 1;
  nn::GPT target = fresh(shape(), 2);
  const double before = loss_of(target);
  EXPECT_NE(load(target, both).find("differ, but model.tie_embeddings"), std::string::npos);
  EXPECT_EQ(loss_of(target), before);
}

TEST_F(Checkpoint, OneNameIsTooFewForAnUntiedModel) {
  const Tensors tied = parameter_tensors(fresh(shape(), 1));
  nn::GPT target = fresh(shape(false), 2);
  EXPECT_NE(load(target, tied).find("model.tie_embeddings must be true"), std::string::npos);
  EXPECT_NE(load(target, renamed(tied, kEmbedding, kHead)).find("tie_embeddings must be true"),
            std::string::npos);
}

TEST_F(Checkpoint, EveryFloatingTypeLoadsWithOneNote) {
  const nn::GPT source = fresh(shape(), 1);
  const double expected = loss_of(source);
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    Tensors tensors = parameter_tensors(source);
    for (auto& [name, tensor] : tensors) tensor = cast(tensor, dtype);
    nn::GPT target = fresh(shape(), 2);
    EXPECT_EQ(load(target, tensors), "");
    EXPECT_NEAR(loss_of(target), expected, 0.005 * expected) << name_of(dtype);
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_NE(notes[0].find(name_of(dtype)), std::string::npos) << notes[0];
  }
  Tensors mixed = parameter_tensors(source);
  for (size_t i = 0; i < mixed.size(); ++i) {
    const DType types[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
    mixed[i].second = cast(mixed[i].second, types[i % 4]);
  }
  nn::GPT target = fresh(shape(), 2);
  EXPECT_EQ(load(target, mixed), "");
  EXPECT_NEAR(loss_of(target), expected, 0.005 * expected);
  EXPECT_EQ(notes.size(), 1U);
}

TEST_F(Checkpoint, AModelInFloat64TakesFloat32Exactly) {
  const nn::GPT source = fresh(shape(), 1);
  nn::GPT wide = fresh(shape(), 2, DType::f64);
  EXPECT_EQ(load(wide, parameter_tensors(source)), "");
  const auto narrow = parameter_tensors(source), loaded = parameter_tensors(wide);
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_EQ(to_doubles(narrow[i].second), to_doubles(loaded[i].second));
  }
}

TEST_F(Checkpoint, NumbersTooLargeForTheModelAreReported) {
  Tensors tensors = parameter_tensors(fresh(shape(), 1));
  tensors[3].second = cast(tensors[3].second, DType::f64);
  tensors[3].second.data<double>()[5] = 1e300;
  nn::GPT target = fresh(shape(), 2);
  const double before = loss_of(target);
  const std::string message = load(target, tensors);
  EXPECT_NE(message.find(tensors[3].first + " holds numbers too large for f32: element 5"),
            std::string::npos)
      << message;
  EXPECT_EQ(loss_of(target), before);
}

TEST_F(Checkpoint, IntegersAreNoWeights) {
  Tensors tensors = parameter_tensors(fresh(shape(), 1));
  tensors[2].second = Tensor::zeros(tensors[2].second.shape(), DType::i8);
  nn::GPT target = fresh(shape(), 2);
  EXPECT_NE(load(target, tensors).find(tensors[2].first + " is stored as i8"), std::string::npos);
}

TEST_F(Checkpoint, TheSettingThatDiffersComesFirst) {
  const Tensors tensors = parameter_tensors(fresh(shape(), 1));
  const auto refusal = [&](const std::function<void(configs::ModelConfig&)>& change) {
    configs::ModelConfig model = shape();
    change(model);
    nn::GPT target = fresh(model, 2);
    const std::string message = load(target, tensors);
    EXPECT_LT(message.size(), 700U) << message;
    const std::string intro = "does not fit the config: ";
    const size_t at = message.find(intro);
    return at == std::string::npos ? message : message.substr(at + intro.size());
  };
  const std::string kv = refusal([](auto& m) { m.n_kv_head = 4; });
  EXPECT_TRUE(
      kv.starts_with("n_kv_head is 8 in the checkpoint and 4 in the config; 4 tensors of "
                     "another shape: model.layers.0.self_attn.k_proj.weight is (64, 64)"))
      << kv;
  EXPECT_NE(kv.find("and 1 more"), std::string::npos) << kv;
  EXPECT_TRUE(refusal([](auto& m) { m.n_layer = 3; })
                  .starts_with("n_layer is 2 in the checkpoint and 3 in the config; 8 tensors "
                               "missing in the file"));
  EXPECT_TRUE(refusal([](auto& m) {
                m.n_layer = 1;
              }).starts_with("n_layer is 2 in the checkpoint and 1 in the config"));
  EXPECT_TRUE(refusal([](auto& m) {
                m.n_embd = 32;
              }).starts_with("n_embd is 64 in the checkpoint and 32 in the config"));
  EXPECT_TRUE(refusal([](auto& m) {
                m.given_n_ff = 100;
              }).starts_with("n_ff is 96 in the checkpoint and 100 in the config; 4 tensors"));
  EXPECT_TRUE(refusal([](auto& m) {
                m.position = configs::Position::learned;
              }).starts_with("position is rope in the checkpoint and learned in the config"));
  EXPECT_TRUE(refusal([](auto& m) {
                m.mlp = configs::MlpKind::swiglu;
              }).starts_with("mlp is without a gate in the checkpoint and swiglu"));
  EXPECT_TRUE(refusal([](auto& m) {
                m.qk_norm = true;
              }).starts_with("qk_norm is false in the checkpoint and true in the config"));
}

TEST_F(Checkpoint, SurplusAndMissingTensorsAreNamed) {
  Tensors more = parameter_tensors(fresh(shape(), 1)), fewer = more;
  more.emplace_back("model.layers.0.rotary.weight", Tensor::zeros({3}, DType::f32));
  fewer.erase(fewer.begin() + 4);
  nn::GPT target = fresh(shape(), 2);
  EXPECT_NE(load(target, more)
                .find("1 tensor with no place in the model: "
                      "model.layers.0.rotary.weight"),
            std::string::npos);
  EXPECT_NE(load(target, fewer).find("1 tensor missing in the file"), std::string::npos);
  Tensors with_optimizer = parameter_tensors(fresh(shape(), 1));
  with_optimizer.emplace_back("optimizer.m.x", Tensor::zeros({3}, DType::f32));
  EXPECT_EQ(load(target, with_optimizer), "");
}

TEST_F(Checkpoint, TheFirstTensorWithANaNIsNamed) {
  const nn::GPT model = fresh(shape(), 1);
  EXPECT_EQ(nn::first_non_finite(model), "");
  auto tensors = parameter_tensors(model);
  tensors[6].second.data<float>()[2] = std::numeric_limits<float>::infinity();
  tensors[9].second.data<float>()[0] = std::nanf("");
  EXPECT_EQ(nn::first_non_finite(model), tensors[6].first);
}

}  // namespace headroom::testing
