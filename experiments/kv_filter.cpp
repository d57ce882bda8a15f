// Turning keys back, laying keys and values side by side, and the same in reverse.
#include "experiments/kv_filter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "nn/positions.h"

namespace headroom::experiments {
namespace {

/// The numbers of a (N, width) and b (N, width) as rows of one (N, 2 width), or back.
Tensor side_by_side(const Tensor& a, const Tensor& b, int64_t N) {
  const int64_t width = a.numel() / N;
  Tensor rows = Tensor::empty({N, 2 * width}, DType::f32);
  for (int64_t n = 0; n < N; ++n) {
    float* row = rows.data<float>() + 2 * width * n;
    std::copy_n(a.data<float>() + width * n, width, row);
    std::copy_n(b.data<float>() + width * n, width, row + width);
  }
  return rows;
}

void divide(const Tensor& rows, Tensor& a, Tensor& b) {
  const int64_t N = rows.dim(0), width = rows.dim(1) / 2;
  for (int64_t n = 0; n < N; ++n) {
    const float* row = rows.data<float>() + 2 * width * n;
    std::copy_n(row, width, a.data<float>() + width * n);
    std::copy_n(row + width, width, b.data<float>() + width * n);
  }
}

}  // namespace

KVFilter::KVFilter(const configs::ModelConfig& model, std::unique_ptr<nn::KVCache> inner,
                   Change change)
    : model_(model), inner_(std::move(inner)), change_(std::move(change)) {
  check_input(!model.mla(),
              "[low-rank] the model has latent attention (attention: mla), whose cache is of low "
              "rank by design: kv_rank {}",
              model.kv_rank());
}

Tensor KVFilter::angles(int64_t new_tokens) {
  if (model_.position != configs::Position::rope) {
    return {};
  }
  std::vector<int32_t> index;
  for (int64_t b = 0; b < batch(); ++b) {
    for (int64_t t = 0; t < new_tokens; ++t) {
      index.push_back(static_cast<int32_t>(position(b) + t));
    }
  }
  const auto rows = static_cast<int64_t>(index.size());
  Tensor table = Tensor::empty({rows, model_.head_dim() / 2, 2}, DType::f32);
  kernels::backend(kCpu).rope_table(Tensor::from(index, {rows}), model_.rope_base, table);
  return table;
}

void KVFilter::turn(Tensor& k, kernels::Direction direction) const {
  if (!angles_.defined()) {
    return;
  }
  Tensor turned = Tensor::empty(k.shape(), DType::f32);
  kernels::backend(kCpu).rope(k, angles_, nn::rope_style(model_), direction, {turned});
  k = turned;
}

kernels::KVView KVFilter::append(int64_t layer, const Tensor& k, const Tensor& v,
                                 const Tensor& counts) {
  const auto given = counts.to_vector<int32_t>();
  check(k.dtype() == DType::f32 && std::all_of(given.begin(), given.end(),
                                               [&](int32_t count) { return count == k.dim(1); }),
        "[filter] sequences of one length in float32 are needed");
  if (layer == 0) {
    angles_ = angles(k.dim(1));
  }
  const int64_t N = k.dim(0) * k.dim(1);
  Tensor plain = k.to(kCpu);
  turn(plain, kernels::Direction::backward);
  Tensor rows = side_by_side(plain, v.to(kCpu), N);
  if (!change_(layer, rows)) {
    return inner_->append(layer, k, v, counts);
  }
  Tensor keys = Tensor::empty(k.shape(), DType::f32), values = Tensor::empty(v.shape(), DType::f32);
  divide(rows, keys, values);
  turn(keys, kernels::Direction::forward);
  return inner_->append(layer, keys.to(k.device()), values.to(v.device()), counts);
}

}  // namespace headroom::experiments
