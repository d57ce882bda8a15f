// Multi-head latent attention: what the absorbed form computes is what the paper's equations say
// with every head's keys and values written out, and its cache needs nothing else.
#include "nn/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "configs/size.h"
#include "golden.h"
#include "gradcheck.h"
#include "kernels/kv_view.h"
#include "nn/gpt.h"

namespace headroom::testing {
namespace {

using Numbers = std::vector<double>;

/// head_dim 6, kv_rank 5 and rope_head_dim 4: no two widths are equal.
configs::ModelConfig latent_config() {
  configs::ModelConfig model;
  model.n_layer = 1;
  model.n_head = model.n_kv_head = 3;
  model.n_embd = 14;
  model.given_head_dim = 6;
  model.attention = configs::AttentionKind::mla;
  model.given_kv_rank = 5;
  model.given_rope_head_dim = 4;
  model.rope_base = 100;
  return model;
}

/// The module's parameters by the last part of their names, with numbers that differ clearly.
class Weights {
 public:
  explicit Weights(const nn::LatentAttention& module) {
    for (const nn::Parameter& p : module.parameters()) {
      Tensor value = p.value.value();
      fill_normal(value, RandomStream(3, p.name), 0.5);
      nn::Variable(p.value).changed();
      numbers_[p.name] = to_doubles(value);
    }
  }
  const Numbers& of(const std::string& name) const { return numbers_.at("at." + name); }
  bool has(const std::string& name) const { return numbers_.contains("at." + name); }

 private:
  std::map<std::string, Numbers> numbers_;
};

/// Rows first .. first + rows of a matrix (.., x.size()), times x.
Numbers product(const Numbers& matrix, size_t first, size_t rows, const Numbers& x) {
  Numbers y(rows, 0);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < x.size(); ++c) {
      y[r] += matrix[(first + r) * x.size() + c] * x[c];
    }
  }
  return y;
}

Numbers rms_norm(Numbers x, const Numbers& weight) {
  double squares = 0;
  for (const double each : x) squares += each * each;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * weight[i];
  return x;
}

/// Pairs (i, i + D/2) turned by position * base^(-2i/D).
Numbers rotated(const Numbers& x, double position, double base) {
  Numbers y = x;
  const size_t half = x.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        position * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(x.size()));
    y[i] = x[i] * std::cos(angle) - x[half + i] * std::sin(angle);
    y[half + i] = x[i] * std::sin(angle) + x[half + i] * std::cos(angle);
  }
  return y;
}

Numbers part(const Numbers& x, size_t begin, size_t end) {
  return {x.begin() + static_cast<std::ptrdiff_t>(begin),
          x.begin() + static_cast<std::ptrdiff_t>(end)};
}

double dot_product(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// One token's queries, and the keys and values that all heads make of its latent.
struct Expanded {
  std::vector<Numbers> q, k, v;  // per head
};

Expanded expanded(const configs::ModelConfig& m, const Weights& w, const Numbers& x, size_t t) {
  const auto H = static_cast<size_t>(m.n_head), D = static_cast<size_t>(m.head_dim()),
             Dr = static_cast<size_t>(m.rope_head_dim()), R = static_cast<size_t>(m.kv_rank());
  const auto position = static_cast<double>(t);
  const Numbers q = product(w.of("q_proj.weight"), 0, H * (D + Dr), x);
  const Numbers a = product(w.of("kv_a_proj_with_mqa.weight"), 0, R + Dr, x);
  const Numbers c = rms_norm(part(a, 0, R), w.of("kv_a_layernorm.weight"));
  Numbers shared_key = part(a, R, R + Dr);
  if (w.has("k_norm.weight")) shared_key = rms_norm(shared_key, w.of("k_norm.weight"));
  shared_key = rotated(shared_key, position, m.rope_base);
  Expanded heads;
  for (size_t h = 0; h < H; ++h) {
    Numbers query = part(q, h * (D + Dr), (h + 1) * (D + Dr));
    if (w.has("q_norm.weight")) query = rms_norm(query, w.of("q_norm.weight"));
    Numbers key = product(w.of("k_b_proj.weight"), h * D, D, c);
    const Numbers turned = rotated(part(query, D, D + Dr), position, m.rope_base);
    std::copy(turned.begin(), turned.end(), query.begin() + static_cast<std::ptrdiff_t>(D));
    key.insert(key.end(), shared_key.begin(), shared_key.end());
    heads.q.push_back(query);
    heads.k.push_back(key);
    heads.v.push_back(product(w.of("v_b_proj.weight"), h * D, D, c));
  }
  return heads;
}

/// What the module should give for x (T, C): equations 9 to 19 of the paper, without the
/// compression of queries.
Numbers reference(const configs::ModelConfig& m, const Weights& w, const Tensor& x) {
  const auto T = static_cast<size_t>(x.dim(0)), C = static_cast<size_t>(x.dim(1)),
             D = static_cast<size_t>(m.head_dim());
  const Numbers numbers = to_doubles(x);
  std::vector<Expanded> tokens;
  Numbers out;
  for (size_t t = 0; t < T; ++t) {
    tokens.push_back(expanded(m, w, part(numbers, t * C, (t + 1) * C), t));
    Numbers concatenated;
    for (size_t h = 0; h < static_cast<size_t>(m.n_head); ++h) {
      Numbers weighted(D, 0);
      double total = w.has("sinks") ? std::exp(w.of("sinks")[h]) : 0;
      for (const Expanded& seen : tokens) {
        const double scale =
            1 / std::sqrt(static_cast<double>(D) + static_cast<double>(m.rope_head_dim()));
        const double weight = std::exp(scale * dot_product(tokens[t].q[h], seen.k[h]));
        total += weight;
        for (size_t i = 0; i < D; ++i) weighted[i] += weight * seen.v[h][i];
      }
      for (const double each : weighted) concatenated.push_back(each / total);
    }
    const Numbers y = product(w.of("o_proj.weight"), 0, C, concatenated);
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}

void expect_expanded_form(const configs::ModelConfig& model) {
  const nn::LatentAttention module(nn::Scope{.name = "at", .seed = 1, .dtype = DType::f64}, model,
                                   0);
  const Weights weights(module);
  const Tensor x = random_tensor({7, model.n_embd}, "x");
  const nn::Pass pass{.dtype = DType::f64, .tables = kernels::dense_tables(1, 7, 7, kCpu)};
  const nn::Positions where = nn::positions(model, 1, 7, pass, kCpu);
  const nn::Variable y = module.forward(nn::Variable(x.reshape({1, 7, model.n_embd})), pass, where);
  EXPECT_LE(max_relative_error(y.value(), Tensor::from(reference(model, weights, x), y.shape())),
            1e-12);
}

// KVC-17
TEST(LatentAttention, TheAbsorbedFormEqualsTheExpandedOne) {
  expect_expanded_form(latent_config());
  configs::ModelConfig all = latent_config();
  all.qk_norm = true;
  all.sink = configs::SinkKind::learned;
  expect_expanded_form(all);
  configs::ModelConfig one_head = latent_config();
  one_head.n_head = one_head.n_kv_head = 1;
  one_head.given_rope_head_dim = 10;  // wider than the head
  expect_expanded_form(one_head);
  configs::ModelConfig learned = latent_config();
  learned.position = configs::Position::learned;
  learned.given_rope_head_dim = 0;
  expect_expanded_form(learned);
}

TEST(LatentAttention, FloatAndBfloat16AreNearFloat64) {
  const configs::ModelConfig model = latent_config();
  const auto result = [&](DType weights, DType activations) {
    const nn::LatentAttention module(nn::Scope{.name = "at", .seed = 1, .dtype = weights}, model,
                                     0);
    const Weights filled(module);
    Tensor x = Tensor::empty({1, 7, model.n_embd}, activations);
    kernels::backend(kCpu).cast(random_tensor({1, 7, model.n_embd}, "x"), x);
    const nn::Pass pass{.dtype = activations, .tables = kernels::dense_tables(1, 7, 7, kCpu)};
    return to_doubles(
        module.forward(nn::Variable(x), pass, nn::positions(model, 1, 7, pass, kCpu)).value());
  };
  const Numbers exact = result(DType::f64, DType::f64);
  const auto error = [&](const Numbers& other) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      most = std::max(most, std::abs(other[i] - exact[i]));
      largest = std::max(largest, std::abs(exact[i]));
    }
    return most / largest;
  };
  EXPECT_LE(error(result(DType::f32, DType::f32)), 1e-5);
  // Six roundings of 2^-9 on the way, each of which sums carry on.
  EXPECT_LE(error(result(DType::f32, DType::bf16)), 0.05);
}

TEST(LatentAttention, ParametersAreThoseOfTheSizeFormulas) {
  for (const bool rope : {true, false}) {
    configs::ModelConfig model = latent_config();
    model.n_layer = 2;
    model.bias = configs::Bias::all;
    model.norm = configs::Norm::layernorm;
    model.qk_norm = true;
    model.sink = configs::SinkKind::learned;
    if (!rope) {
      model.position = configs::Position::learned;
      model.given_rope_head_dim = 0;
    }
    const nn::GPT gpt(model, 11, nn::Scope{.seed = 1});
    std::vector<std::string> made, listed;
    for (const nn::Parameter& p : gpt.parameters()) {
      const auto dims = p.value.shape().dims();
      made.push_back(fmt::format("{} {}", p.name, fmt::join(dims.begin(), dims.end(), "x")));
    }
    for (const configs::ParameterSize& each : configs::parameters(model, 11)) {
      listed.push_back(fmt::format("{} {}", each.name, fmt::join(each.shape, "x")));
    }
    EXPECT_EQ(made, listed);
  }
}

TEST(LatentAttention, MatricesPerHeadCountAmongTheBytesOfWeights) {
  const configs::ModelConfig model = latent_config();
  nn::GPT gpt(model, 11, nn::Scope{.seed = 1});
  int64_t elements = 11 * model.n_embd;  // the tied head
  for (const configs::ParameterSize& each : configs::layer_parameters(model, 0)) {
    elements += each.shape.size() == 2 ? each.count() : 0;
  }
  EXPECT_EQ(gpt.weight_bytes(DType::f32), 4 * elements);
  gpt.store_weights(DType::bf16);
  const int64_t per_head = 2 * 3 * 6 * 5;  // they stay in f32
  EXPECT_EQ(gpt.weight_bytes(DType::f32), 2 * (elements - per_head) + 4 * per_head);
}

}  // namespace
}  // namespace headroom::testing
