// Means of consecutive heads' rows.
#include "nn/pool_heads.h"

#include <vector>

namespace headroom::nn {

namespace {

/// x (heads * group * D, ...) to y (heads * D, ...): means over the `group` blocks of D rows that
/// follow one another. Both are on the host.
void mean_of_groups(const Tensor& x, int64_t heads, Tensor& y) {
  const int64_t head = y.numel() / heads, group = x.numel() / y.numel();
  const float* from = x.data<float>();
  float* to = y.data<float>();
  for (int64_t i = 0; i < y.numel(); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < group; ++j) {
      sum += from[(i / head * group + j) * head + i % head];
    }
    to[i] = static_cast<float>(sum / static_cast<double>(group));
  }
}

}  // namespace

void pool_kv_heads(const GPT& from, GPT& to) {
  const int64_t before = from.config().n_kv_head, heads = to.config().n_kv_head;
  check(!from.config().mla() && before % heads == 0 && before > heads,
        "[pool] {} KV heads can't be pooled to {}", before, heads);
  check(from.dtype() == DType::f32 && to.dtype() == DType::f32, "[pool] models in f32 are needed");
  const std::vector<Parameter> sources = from.parameters(), targets = to.parameters();
  check(sources.size() == targets.size(), "[pool] the models have {} and {} parameters",
        sources.size(), targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const Tensor& source = sources[i].value.value();
    Tensor target = targets[i].value.value();
    if (source.shape() == target.shape()) {
      target.copy_from(source);
    } else {
      Tensor means = Tensor::empty(target.shape(), target.dtype());
      mean_of_groups(source.to(kCpu), heads, means);
      target.copy_from(means);
    }
    Variable(targets[i].value).changed();
  }
}

}  // namespace headroom::nn
