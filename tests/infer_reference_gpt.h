// A GPT written a second time, in the plainest way: one token at a time, in double, with loops. It
// keeps the unrotated key and the value of every token it has seen, and at each step attends over
// exactly the tokens a window and its sinks keep, at consecutive positions 0, 1, 2, ... (arXiv
// 2309.17453, section 3.2). For models with rope, rmsnorm, gelu, no biases and a head of its own.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "infer_model.h"

namespace headroom::testing {

class ReferenceGPT {
 public:
  explicit ReferenceGPT(const nn::GPT& model, kernels::AttentionMask mask = {})
      : config_(model.config()), mask_(mask), layers_(static_cast<size_t>(config_.n_layer)) {
    for (const nn::Parameter& p : model.parameters()) {
      weights_[p.name] = doubles(p.value.value());
    }
  }

  /// Logits (V) after one more token.
  std::vector<double> step(int32_t token) {
    const Vector& embedding = weights_.at("model.embed_tokens.weight");
    Vector x(embedding.begin() + token * config_.n_embd,
             embedding.begin() + (token + 1) * config_.n_embd);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string name = "model.layers." + std::to_string(i) + ".";
      add(x, attention(normed(x, name + "input_layernorm"), name + "self_attn.", layers_[i]));
      Vector h = times(normed(x, name + "post_attention_layernorm"), name + "mlp.up_proj");
      for (double& v : h) {
        v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      }
      add(x, times(h, name + "mlp.down_proj"));
    }
    return times(normed(x, "model.norm"), "lm_head");
  }

 private:
  using Vector = std::vector<double>;
  struct Layer {
    std::vector<Vector> k, v;  // of every token, unrotated
  };

  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] += y[i];
    }
  }

  Vector normed(const Vector& x, const std::string& name) const {
    double squares = 0;
    for (const double v : x) {
      squares += v * v;
    }
    const double rms = std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_eps);
    Vector y = x;
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = x[i] / rms * weights_.at(name + ".weight")[i];
    }
    return y;
  }

  Vector times(const Vector& x, const std::string& name) const {
    const Vector& w = weights_.at(name + ".weight");
    Vector y(w.size() / x.size(), 0.0);
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) {
        y[o] += w[o * x.size() + i] * x[i];
      }
    }
    return y;
  }

  /// One head of `heads`, turned to a position (RoFormer, arXiv 2104.09864).
  Vector rotated(const Vector& heads, int64_t head, int64_t position) const {
    const int64_t D = config_.head_dim();
    Vector x(heads.begin() + head * D, heads.begin() + (head + 1) * D);
    Vector y = x;
    for (int64_t i = 0; i < D / 2; ++i) {
      const bool half = config_.rope_style == configs::RopeStyle::half;
      const auto a = static_cast<size_t>(half ? i : 2 * i);
      const auto b = static_cast<size_t>(half ? i + D / 2 : 2 * i + 1);
      const double angle =
          static_cast<double>(position) *
          std::pow(config_.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(D));
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    }
    return y;
  }

  /// The tokens that the newest one sees, oldest first.
  std::vector<size_t> kept(size_t count) const {
    std::vector<size_t> all;
    for (size_t j = 0; j < count; ++j) {
      const bool in_window = mask_.window == 0 || count - j <= static_cast<size_t>(mask_.window);
      if (in_window || j < static_cast<size_t>(mask_.sinks)) {
        all.push_back(j);
      }
    }
    return all;
  }

  Vector attention(const Vector& x, const std::string& name, Layer& layer) {
    const Vector q = times(x, name + "q_proj");
    layer.k.push_back(times(x, name + "k_proj"));
    layer.v.push_back(times(x, name + "v_proj"));
    const std::vector<size_t> seen = kept(layer.k.size());
    const int64_t D = config_.head_dim();
    Vector out(q.size(), 0.0);
    for (int64_t h = 0; h < config_.n_head; ++h) {
      const int64_t kv_head = h / (config_.n_head / config_.n_kv_head);
      const Vector query = rotated(q, h, static_cast<int64_t>(seen.size()) - 1);
      Vector weights;
      double sum = 0;
      for (size_t i = 0; i < seen.size(); ++i) {
        const Vector key = rotated(layer.k[seen[i]], kv_head, static_cast<int64_t>(i));
        double score = 0;
        for (size_t d = 0; d < key.size(); ++d) {
          score += query[d] * key[d];
        }
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(D))));
        sum += weights.back();
      }
      for (size_t i = 0; i < seen.size(); ++i) {
        for (int64_t d = 0; d < D; ++d) {
          out[static_cast<size_t>(h * D + d)] +=
              weights[i] / sum * layer.v[seen[i]][static_cast<size_t>(kv_head * D + d)];
        }
      }
    }
    return times(out, name + "o_proj");
  }

  const configs::ModelConfig config_;
  kernels::AttentionMask mask_;
  std::vector<Layer> layers_;
  std::map<std::string, Vector> weights_;
};

}  // namespace headroom::testing
