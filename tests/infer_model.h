// What the tests of infer share: small models whose logits differ clearly, and a cache so simple
// that it can be trusted.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "configs/size.h"
#include "infer/engine.h"
#include "infer/verify.h"
#include "kernels/threads.h"
#include "nn/gpt.h"

namespace headroom::testing {

/// The models are so small that a second thread would only be waited for.
inline const int kThreads = kernels::set_threads(1);

inline constexpr int64_t kVocab = 37;

/// 2 layers, 8 heads of 8, 64 wide.
inline configs::ModelConfig small_config(int64_t n_kv_head = 2, int64_t block_size = 64) {
  configs::ModelConfig model;
  model.n_layer = 2;
  model.n_head = 8;
  model.n_kv_head = n_kv_head;
  model.n_embd = 64;
  model.given_n_ff = 96;
  model.block_size = block_size;
  model.tie_embeddings = false;  // a tied head would repeat the last token for ever
  return model;
}

/// A model whose matrices start at sd 0.3 instead of 0.02, so that attention looks at something and
/// logits are far apart.
inline std::unique_ptr<nn::GPT> small_model(const configs::ModelConfig& config,
                                            DType dtype = DType::f32, int64_t vocab = kVocab) {
  auto model = std::make_unique<nn::GPT>(config, vocab, nn::Scope{.seed = 7, .dtype = dtype});
  for (const nn::Parameter& p : model->parameters()) {
    if (p.value.shape().rank() == 2) {
      Tensor value = p.value.value();
      fill_normal(value, RandomStream(7, "test/" + p.name), 0.3);
      nn::Variable(p.value).changed();
    }
  }
  return model;
}

/// Keys and values of each sequence in a row of their own, copied into new tensors at every append.
/// The faults are what real programs got wrong.
class ConcatenatingCache : public nn::KVCache {
 public:
  enum class Fault { none, position_stays_zero, newest_first, mask_top_left, wrong_axis };

  ConcatenatingCache(const configs::ModelConfig& model, int64_t batch,
                     kernels::AttentionMask mask = {}, Fault fault = Fault::none)
      : shape_(configs::kv_shape(model)),
        mask_(mask),
        fault_(fault),
        layers_(static_cast<size_t>(model.n_layer),
                std::vector<Sequence>(static_cast<size_t>(batch))) {}

  int64_t batch() const override { return static_cast<int64_t>(layers_[0].size()); }
  int64_t position(int64_t b) const override {
    return fault_ == Fault::position_stays_zero ? 0 : length(layers_[0][static_cast<size_t>(b)]);
  }
  kernels::AttentionMask mask(int64_t) const override { return mask_; }

  kernels::KVView append(int64_t layer, const Tensor& k, const Tensor& v,
                         const Tensor& counts) override {
    return k.dtype() == DType::f64 ? concatenate<double>(layer, k, v, counts)
                                   : concatenate<float>(layer, k, v, counts);
  }

 private:
  struct Sequence {
    std::vector<double> k, v;
  };
  int64_t length(const Sequence& s) const {
    return static_cast<int64_t>(s.k.size()) / (shape_.heads * shape_.key_size);
  }

  template <class T>
  kernels::KVView concatenate(int64_t layer, const Tensor& k, const Tensor& v,
                              const Tensor& counts) {
    auto& sequences = layers_[static_cast<size_t>(layer)];
    const int64_t k_row = shape_.heads * shape_.key_size, v_row = shape_.heads * shape_.value_size,
                  B = batch();
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < B; ++b) {
      Sequence& s = sequences[static_cast<size_t>(b)];
      const int64_t n = counts.data<int32_t>()[b], from = b * k.dim(1);
      const bool front = fault_ == Fault::newest_first;
      s.k.insert(front ? s.k.begin() : s.k.end(), k.data<T>() + from * k_row,
                 k.data<T>() + (from + n) * k_row);
      s.v.insert(front ? s.v.begin() : s.v.end(), v.data<T>() + from * v_row,
                 v.data<T>() + (from + n) * v_row);
      lengths.push_back(static_cast<int32_t>(length(s)));
    }
    const int64_t S = std::max(1, *std::max_element(lengths.begin(), lengths.end()));
    Tensor keys = Tensor::zeros({B * S, shape_.heads, shape_.key_size}, k.dtype());
    Tensor values = Tensor::zeros({B * S, shape_.heads, shape_.value_size}, k.dtype());
    const int64_t blocks = (S + 63) / 64;
    std::vector<int32_t> slots, starts;
    for (int64_t b = 0; b < B; ++b) {
      const Sequence& s = sequences[static_cast<size_t>(b)];
      std::copy(s.k.begin(), s.k.end(), keys.data<T>() + b * S * k_row);
      if (fault_ == Fault::wrong_axis) {
        transpose(s.k, length(s), keys.data<T>() + b * S * k_row);
      }
      std::copy(s.v.begin(), s.v.end(), values.data<T>() + b * S * v_row);
      for (int64_t n = 0; n < blocks; ++n) {
        slots.push_back(static_cast<int32_t>(b * S + 64 * n));
        starts.push_back(static_cast<int32_t>(64 * n));
      }
    }
    if (fault_ == Fault::mask_top_left) {  // the first query of a pass sees the first key alone
      lengths.assign(counts.data<int32_t>(), counts.data<int32_t>() + B);
    }
    return {keys,
            values,
            Tensor::from(slots, {B, blocks}),
            Tensor::from(starts, {B, blocks}),
            Tensor::from(lengths, {B}),
            counts};
  }

  /// As if heads had been the axis that grows: head by head, read position by position.
  template <class T>
  void transpose(const std::vector<double>& from, int64_t length, T* to) const {
    for (int64_t j = 0; j < length * shape_.heads; ++j) {
      const int64_t source = j % shape_.heads * length + j / shape_.heads;
      std::copy_n(from.begin() + j * shape_.key_size, shape_.key_size,
                  to + source * shape_.key_size);
    }
  }

  configs::KVShape shape_;
  kernels::AttentionMask mask_;
  Fault fault_;
  std::vector<std::vector<Sequence>> layers_;
};

inline std::vector<int32_t> tokens(int64_t count, uint64_t row = 0) {
  return infer::synthetic_tokens(count, kVocab, 11, row);
}

inline std::vector<double> doubles(const Tensor& x) {
  if (x.dtype() == DType::f64) {
    return x.to_vector<double>();
  }
  const auto values = x.to_vector<float>();
  return {values.begin(), values.end()};
}

/// Logits of one sequence, without a cache: V numbers for each token.
inline std::vector<double> whole_logits(const nn::GPT& model, const std::vector<int32_t>& ids,
                                        kernels::AttentionMask mask = {}) {
  const autograd::NoGrad no_grad;
  const auto T = static_cast<int64_t>(ids.size());
  const nn::Pass pass{.dtype = model.dtype(), .mask = mask};
  const nn::Variable hidden = model.hidden(Tensor::from(ids, {1, T}), pass);
  return doubles(model.head(hidden.reshape({T, model.config().n_embd})).value());
}

/// Logits of several sequences through a cache, in chunks of the given sizes (of every sequence),
/// the last one repeated.
inline std::vector<std::vector<double>> cached_logits(const nn::GPT& model, nn::KVCache& cache,
                                                      const infer::Sequences& ids,
                                                      const std::vector<int64_t>& chunks) {
  const autograd::NoGrad no_grad;
  std::vector<std::vector<double>> logits(ids.size());
  std::vector<size_t> done(ids.size(), 0);
  for (size_t i = 0;; ++i) {
    const auto chunk = static_cast<size_t>(chunks[std::min(i, chunks.size() - 1)]);
    infer::Sequences piece(ids.size());
    bool any = false;
    for (size_t b = 0; b < ids.size(); ++b) {
      const size_t end = std::min(ids[b].size(), done[b] + chunk);
      piece[b].assign(ids[b].begin() + static_cast<std::ptrdiff_t>(done[b]),
                      ids[b].begin() + static_cast<std::ptrdiff_t>(end));
      done[b] = end;
      any = any || !piece[b].empty();
    }
    if (!any) {
      return logits;
    }
    infer::feed(model, cache, piece, static_cast<int64_t>(chunk), model.dtype(),
                [&](int64_t b, int64_t, const Tensor& rows) {
                  const auto out = doubles(model.head(nn::Variable(rows.clone())).value());
                  auto& all = logits[static_cast<size_t>(b)];
                  all.insert(all.end(), out.begin(), out.end());
                });
  }
}

/// max |a - b| / max |b|; infinite when the sizes differ or something is not finite.
inline double error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return INFINITY;
  }
  double diff = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      return INFINITY;
    }
    diff = std::max(diff, std::abs(a[i] - b[i]));
    most = std::max(most, std::abs(b[i]));
  }
  return diff / most;
}

/// Greedy in float64, unless told otherwise.
inline infer::GenerateOptions greedy(int64_t count, const std::string& cache = "static",
                                     double temperature = 0) {
  return {.tokens = count,
          .sampling = {.temperature = temperature, .seed = 3},
          .cache = infer::parse_cache_spec(cache),
          .dtype = DType::f64};
}

inline infer::Generated run(const nn::GPT& model, const infer::Sequences& prompts,
                            const infer::GenerateOptions& how) {
  return infer::generate(model, prompts, how, [](int64_t, int32_t) { return true; });
}

inline double bound(DType dtype) { return dtype == DType::f64 ? 1e-12 : 1e-5; }

}  // namespace headroom::testing
